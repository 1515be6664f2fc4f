// A server that echoes: `vforked PORT`. A connection's first line says how a child of vfork(2), or of posix_spawn(3), gives its
// number to something else before it executes another program. Then comes a word, and bytes as they are.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *const words[] = {"true", NULL};
static int null, ends[2], local;

static void is(int right, const char *what) {
    if (!right) {
        printf("wrong: %s, errno %d\n", what, errno);
        fflush(stdout);
        _exit(1);
    }
}

static int loopback(int listens) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7001), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (listens) is(bind(fd, (void *)&to, sizeof to) == 0 && listen(fd, 64) == 0, "listen");
    else connect(fd, (void *)&to, sizeof to);
    return fd;
}

// In the child.
static void onto(int fd) { dup2(ends[1], fd); }
static void onto_by_three(int fd) { dup3(ends[1], fd, 0); }
static void closed(int fd) {
    close(fd);
    fcntl(null, F_DUPFD, fd);
}
static void closed_by_range(int fd) {
    close_range(fd, fd, 0);
    fcntl(null, F_DUPFD, fd);
}
static void closed_from(int fd) {
    // But for the pipe, which has lower numbers.
    closefrom(fd);
    while (dup(0) < fd) {}
}
static void set(int fd) {
    close(fd);
    while (epoll_create1(0) < fd) {}
}
static void accepted(int fd) {
    close(fd);
    for (int new = -1; new < fd;) {
        loopback(0);
        new = accept(local, NULL, NULL);
    }
}
static void connected(int fd) {
    close(fd);
    while (loopback(0) < fd) {}
}

static const struct { const char *name; void (*change)(int); } all[] = {
    {"onto", onto}, {"onto_by_three", onto_by_three}, {"closed", closed}, {"closed_by_range", closed_by_range},
    {"closed_from", closed_from}, {"set", set}, {"accepted", accepted}, {"connected", connected},
};

static void spawns(const char *name, int fd) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (!strcmp(name, "spawned_onto")) posix_spawn_file_actions_adddup2(&actions, null, fd);
    else if (!strcmp(name, "spawned_closed")) posix_spawn_file_actions_addclose(&actions, fd);
    else if (!strcmp(name, "spawned_open")) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDONLY, 0);
    else is(0, "what it is to do");
    pid_t child;
    is(posix_spawnp(&child, words[0], &actions, NULL, words, environ) == 0, "posix_spawnp");
    is(waitpid(child, NULL, 0) == child, "waitpid");
}

static void does(const char *name, int fd) {
    void (*volatile change)(int) = NULL;
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        if (!strcmp(name, all[at].name)) change = all[at].change;
    }
    if (!change) {
        spawns(name, fd);
        return;
    }
    int status, writes = !strncmp(name, "onto", 4);
    pid_t child = vfork();
    if (child == 0) {
        change(fd);
        // The byte goes to the child's pipe, and not to the connection.
        if (writes && write(fd, "x", 1) != 1) _exit(2);
        execvp(words[0], words);
        _exit(1);
    }
    is(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child");
    char byte = 0;
    if (writes) is(read(ends[0], &byte, 1) == 1 && byte == 'x', "the child's byte");
}

int main(int argc, char **argv) {
    is(argc == 2, "the arguments");
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    is(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
    local = loopback(1);
    int one = 1, listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(argv[1]))};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    is(bind(listener, (void *)&to, sizeof to) == 0 && listen(listener, 64) == 0, "listen");
    puts("listens");
    fflush(stdout);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        char line[64], bytes[1 << 16];
        size_t len = 0;
        while (len < sizeof line && read(fd, line + len, 1) == 1 && line[len] != '\n') len++;
        line[len] = 0;
        does(line, fd);
        is(write(fd, "done\n", 5) == 5, "write");
        for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;) {
            for (ssize_t at = 0, sent; at < got; at += sent) is((sent = write(fd, bytes + at, got - at)) > 0, "write");
        }
        close(fd);
    }
}

// Threads that are cancelled in their calls on a connection. The first line of a connection is the name of a call, and
// "deferred" or "asynchronous": a thread makes that call again and again and is cancelled. "NAME cancelled" is said
// then, and all that comes is sent back.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static char filler[1 << 16];

struct job {
    const char *name;
    int fd, is_asynchronous, ends[2];
    atomic_long calls;
};

// Room for what is read, which nobody looks at.
static __thread char into[1 << 16];

static void call(struct job *job) {
    int fd = job->fd;
    const char *name = job->name;
    struct iovec part = {into, sizeof into};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct pollfd polled = {fd, POLLIN, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    if (!strcmp(name, "read")) read(fd, into, sizeof into);
    else if (!strcmp(name, "readv")) readv(fd, &part, 1);
    else if (!strcmp(name, "recv")) recv(fd, into, sizeof into, 0);
    else if (!strcmp(name, "recvfrom")) recvfrom(fd, into, sizeof into, 0, NULL, NULL);
    else if (!strcmp(name, "recvmsg")) recvmsg(fd, &message, 0);
    else if (!strcmp(name, "recv_all")) recv(fd, into, sizeof into, MSG_WAITALL);
    else if (!strcmp(name, "recv_some")) recv(fd, into, sizeof into, MSG_DONTWAIT);
    else if (!strcmp(name, "write")) write(fd, filler, sizeof filler);
    else if (!strcmp(name, "send")) send(fd, filler, sizeof filler, 0);
    else if (!strcmp(name, "send_some")) send(fd, filler, 1000, MSG_DONTWAIT);
    else if (!strcmp(name, "sendmsg")) {
        part.iov_base = filler;
        sendmsg(fd, &message, 0);
    } else if (!strcmp(name, "poll")) poll(&polled, 1, -1);
    else if (!strcmp(name, "poll_some")) poll(&polled, 1, 0);
    else if (!strcmp(name, "ppoll")) ppoll(&polled, 1, NULL, NULL);
    else if (!strcmp(name, "select")) select(fd + 1, &set, NULL, NULL, NULL);
    else if (!strcmp(name, "pselect")) pselect(fd + 1, &set, NULL, NULL, NULL, NULL);
    else if (!strcmp(name, "epoll_wait")) {
        struct epoll_event event = {EPOLLIN, {.fd = fd}};
        epoll_wait(job->ends[0], &event, 1, -1);
    } else if (!strcmp(name, "splice") || !strcmp(name, "splice_full")) {
        splice(fd, NULL, job->ends[1], NULL, 1000, 0);
    } else if (!strcmp(name, "splice_out")) splice(job->ends[0], NULL, fd, NULL, 1000, 0);
    else abort();
    atomic_fetch_add(&job->calls, 1);
}

static void *thread(void *of) {
    struct job *job = of;
    if (job->is_asynchronous) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) call(job);
    return NULL;
}

// Whether the thread has made some calls, or has stopped making any.
static void wait_for(struct job *job) {
    long before = -1, turns = 0;
    while (turns < 50 && atomic_load(&job->calls) < 300) {
        long now = atomic_load(&job->calls);
        turns = now == before ? turns + 1 : 0;
        before = now;
        usleep(1000);
    }
}

static void *serve(void *of) {
    int fd = (int)(long)of, len = 0;
    char line[64] = "", kind[32], name[32];
    while (len < 63 && recv(fd, line + len, 1, 0) == 1 && line[len++] != '\n') {}
    if (sscanf(line, " %31s %31s", name, kind) != 2) abort();
    struct job job = {.name = name, .fd = fd, .is_asynchronous = kind[0] == 'a'};
    if (!strcmp(name, "epoll_wait")) {
        struct epoll_event event = {EPOLLIN, {.fd = fd}};
        job.ends[0] = epoll_create1(0);
        epoll_ctl(job.ends[0], EPOLL_CTL_ADD, fd, &event);
    } else if (!strncmp(name, "splice", 6)) {
        if (pipe2(job.ends, O_NONBLOCK)) abort();
        while (!strcmp(name, "splice_full") && write(job.ends[1], filler, 4096) == 4096) {}
        fcntl(job.ends[0], F_SETFL, 0);
        fcntl(job.ends[1], F_SETFL, 0);
    }
    // A thread that spins is cancelled in the middle of anything.
    int turns = strstr(name, "_some") ? 50 : 3;
    for (int turn = 0; turn < turns; turn++) {
        pthread_t of;
        void *result;
        atomic_store(&job.calls, 0);
        if (pthread_create(&of, NULL, thread, &job)) abort();
        wait_for(&job);
        if (pthread_cancel(of) || pthread_join(of, &result) || result != PTHREAD_CANCELED) abort();
    }
    dprintf(1, "%s %s\n", name, kind);
    len = snprintf(line, sizeof line, "%s cancelled\n", name);
    send(fd, line, len, MSG_NOSIGNAL);
    char bytes[4096];
    ssize_t got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        if (send(fd, bytes, got, MSG_NOSIGNAL) != got) abort();
    close(fd);
    return NULL;
}

int main(void) {
    int one = 1;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(7000)};
    memset(filler, '.', sizeof filler);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) || listen(listener, 64)) abort();
    puts("listens");
    fflush(stdout);
    for (;;) {
        pthread_t of;
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || pthread_create(&of, NULL, serve, (void *)(long)fd)) abort();
        pthread_detach(of);
    }
}

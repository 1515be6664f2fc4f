// A server that echoes, each connection in a thread. It accepts at its first port by libc, and at its second by the system
// call itself, past all that is loaded.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void is(int right, const char *what) {
    if (!right) {
        printf("wrong: %s, errno %d\n", what, errno);
        exit(1);
    }
}

static long past(long number, long a, long b, long c, long d) {
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    if (result >= 0) return result;
    errno = -result;
    return -1;
}

static int listener(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    is(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0, "SO_REUSEADDR");
    is(bind(fd, (void *)&at, sizeof at) == 0, "bind");
    is(listen(fd, 64) == 0, "listen");
    return fd;
}

static void *echo(void *given) {
    static __thread char bytes[64 << 10];
    int fd = (int)(long)given;
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;)
        for (ssize_t at = 0, sent; at < got; at += sent)
            if ((sent = send(fd, bytes + at, got - at, MSG_NOSIGNAL)) < 0) goto end;
end:
    close(fd);
    return NULL;
}

// The names of a connection are those of TCP, whatever it is here.
static void is_named(int fd) {
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    is(getpeername(fd, (void *)&name, &len) == 0 && name.sin_family == AF_INET, "its peer's name");
    len = sizeof name;
    is(getsockname(fd, (void *)&name, &len) == 0 && name.sin_family == AF_INET, "its name");
}

// One that nobody connects to: a thread is cancelled where it waits there, and in no other way afterwards.
static void *wait_for_none(void *given) {
    accept((int)(long)given, NULL, NULL);
    return NULL;
}

static void is_cancelled(void) {
    pthread_t thread;
    void *end;
    is(pthread_create(&thread, NULL, wait_for_none, (void *)(long)listener(0)) == 0, "a thread");
    usleep(50000);
    is(pthread_cancel(thread) == 0 && pthread_join(thread, &end) == 0, "a thread's end");
    is(end == PTHREAD_CANCELED, "a thread that is cancelled");
}

static void *serve(void *given) {
    long *one = given, fd = one[0], is_past = one[1];
    for (;;) {
        long new = is_past ? past(SYS_accept4, fd, 0, 0, 0) : accept4(fd, NULL, NULL, 0);
        is(new >= 0, "accept4");
        is_named(new);
        int before;
        pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before);
        is(before == PTHREAD_CANCEL_DEFERRED, "how it is cancelled");
        pthread_t thread;
        is(pthread_create(&thread, NULL, echo, (void *)new) == 0, "a thread");
        pthread_detach(thread);
    }
}

int main(int count, char **words) {
    is(count == 3, "two ports");
    setvbuf(stdout, NULL, _IOLBF, 0);
    long ways[2][2] = {{listener(atoi(words[1])), 0}, {listener(atoi(words[2])), 1}};
    is_cancelled();
    pthread_t thread;
    is(pthread_create(&thread, NULL, serve, ways[0]) == 0, "a thread");
    puts("listens");
    serve(ways[1]);
}

// An echo server whose threads share one epoll set: `sets PORT THREADS KIND [child]`. All threads wait in the set before the
// first connection is accepted. It ends with a word if an event has no connection's data, or if one shot is told twice.
//
// Bytes come back as they are, but for two that stand alone: after `B` a thread stays in its handler until another one has
// read an `R`.
//
// `sets PORT exec` and `sets PORT pass`: another program gets the set, with a connection and a pipe in it, after SIGHUP, and
// says how many events are there.
//
// `sets PORT signals WAIT`: the main thread waits in a set that has the first connection alone, by epoll_wait, epoll_pwait or
// epoll_pwait2, while another thread serves all others. 300 signals are sent to it, each when it waits: each ends the wait.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 1024
#define ROOM (64 << 10)
#define DATA 0x5e75000000000000

struct connection {
    int fd;
    atomic_int handlers;
    pthread_mutex_t lock;
};

static struct connection all[MOST];
static atomic_int count;
static int set, kind;
static sem_t released;
static atomic_int tids[64];

static void is(int right, const char *what) {
    if (!right) {
        printf("wrong: %s, errno %d\n", what, errno);
        fflush(stdout);
        _exit(1);
    }
}

static void put(int fd, const char *from, ssize_t len) {
    while (len > 0) {
        ssize_t sent = send(fd, from, len, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) return;
            struct pollfd room = {fd, POLLOUT, 0};
            poll(&room, 1, -1);
            continue;
        }
        from += sent;
        len -= sent;
    }
}

// Whether the connection has more to come.
static int serve(int fd, char *bytes) {
    for (;;) {
        ssize_t got = read(fd, bytes, ROOM);
        if (got < 0 && errno == EAGAIN) return 1;
        if (got <= 0) return 0;
        if (got == 1 && bytes[0] == 'R') is(sem_post(&released) == 0, "sem_post");
        if (got == 1 && bytes[0] == 'B') {
            put(fd, "b", 1);
            while (sem_wait(&released) < 0) is(errno == EINTR, "sem_wait");
        }
        put(fd, bytes, got);
    }
}

static void handle(const struct epoll_event *event, char *bytes) {
    uint64_t number = event->data.u64 - DATA;
    is(number < (uint64_t)count, "an event of nobody's");
    struct connection *one = all + number;
    int once = kind & EPOLLONESHOT;
    if (once) {
        is(atomic_fetch_add(&one->handlers, 1) == 0, "one shot that is told twice");
    } else if (kind & EPOLLET) {
        pthread_mutex_lock(&one->lock);
    } else if (pthread_mutex_trylock(&one->lock) != 0) {
        // A level is told to others, too, until the thread that has it has read.
        return;
    }
    int fd = one->fd, goes_on = fd < 0 || serve(fd, bytes);
    if (!goes_on) one->fd = -1;
    if (once) {
        atomic_fetch_sub(&one->handlers, 1);
    } else {
        pthread_mutex_unlock(&one->lock);
    }
    if (!goes_on) {
        close(fd);
    } else if (once && fd >= 0) {
        struct epoll_event again = *event;
        again.events = EPOLLIN | kind;
        is(epoll_ctl(set, EPOLL_CTL_MOD, fd, &again) == 0, "epoll_ctl");
    }
}

__attribute__((noreturn)) static void *waits(void *number) {
    char *bytes = malloc(ROOM);
    struct epoll_event events[4];
    tids[(long)number] = syscall(SYS_gettid);
    for (;;) {
        int found = epoll_wait(set, events, 4, -1);
        is(found > 0 || (found < 0 && errno == EINTR), "epoll_wait without a time has ended");
        for (int at = 0; at < found; at++) handle(events + at, bytes);
    }
}

// Until these threads are in epoll_wait.
static void all_wait(int threads) {
    // Without /proc nobody says so.
    if (access("/proc/self", F_OK) != 0) return;
    for (int at = 0; at < threads;) {
        char path[64], line[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tids[at]);
        int file = tids[at] ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (file >= 0) {
            is(read(file, line, sizeof line - 1) >= 0, "a thread's system call");
            close(file);
        }
        int call = line[0] >= '0' && line[0] <= '9' ? atoi(line) : -1;
        int there = call == SYS_epoll_pwait;
#ifdef SYS_epoll_wait
        there |= call == SYS_epoll_wait;
#endif
#ifdef SYS_epoll_pwait2
        there |= call == SYS_epoll_pwait2;
#endif
        if (there) at++;
        else usleep(1000);
    }
}

static atomic_int interrupted;
static pthread_t waiter;

static void nothing(int signal) {
    (void)signal;
}

__attribute__((noreturn)) static void *sends(void *unused) {
    (void)unused;
    for (int sent = 0; sent < 300; sent++) {
        all_wait(1);
        is(pthread_kill(waiter, SIGHUP) == 0, "pthread_kill");
        while (interrupted == sent) usleep(100);
    }
    puts("interrupted");
    fflush(stdout);
    for (;;) pause();
}

__attribute__((noreturn)) static void is_interrupted(const char *how) {
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    struct epoll_event events[4];
    sigset_t without, with;
    sigemptyset(&without);
    sigemptyset(&with);
    sigaddset(&with, SIGHUP);
    int is_plain = !strcmp(how, "epoll_wait");
    is(sigaction(SIGHUP, &action, NULL) == 0, "sigaction");
    is(pthread_sigmask(SIG_SETMASK, is_plain ? &without : &with, NULL) == 0, "pthread_sigmask");
    waiter = pthread_self();
    tids[0] = syscall(SYS_gettid);
    pthread_t thread;
    is(pthread_create(&thread, NULL, sends, NULL) == 0, "a thread");
    for (;;) {
        int found = is_plain ? epoll_wait(set, events, 4, -1)
            : !strcmp(how, "epoll_pwait") ? epoll_pwait(set, events, 4, -1, &without)
            : epoll_pwait2(set, events, 4, NULL, &without);
        is(found == -1 && errno == EINTR, "what ends the wait");
        interrupted++;
    }
}

static void begin(int threads) {
    pthread_t thread;
    for (long at = 0; at < threads; at++) is(pthread_create(&thread, NULL, waits, (void *)at) == 0, "a thread");
    all_wait(threads);
}

static void add(int fd) {
    struct connection *one = all + count;
    is(count < MOST, "too many connections");
    one->fd = fd;
    pthread_mutex_init(&one->lock, NULL);
    is(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    count++;
    struct epoll_event event = {EPOLLIN | kind, {.u64 = DATA + (one - all)}};
    is(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static int listens_at(const char *port) {
    int one = 1, listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(port))};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    is(bind(listener, (void *)&to, sizeof to) == 0 && listen(listener, 64) == 0, "listen");
    return listener;
}

// Each event that is there is the pipe's, with 7 as its data.
__attribute__((noreturn)) static void looks(int of) {
    struct epoll_event events[8];
    int found = epoll_wait(of, events, 8, -1);
    for (int at = 0; at < found; at++) is(events[at].data.u64 == 7, "an event of nobody's");
    printf("events: %d\n", found);
    fflush(stdout);
    pause();
    _exit(0);
}

union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

// Sends a descriptor, or receives one.
static int pass(int by, int fd) {
    char byte = 0;
    union control control = {{.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (fd < 0) is(recvmsg(by, &message, 0) == 1, "recvmsg");
    else memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    if (fd >= 0) is(sendmsg(by, &message, 0) == 1, "sendmsg");
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    return fd;
}

__attribute__((noreturn)) static void hands_on(char **argv) {
    char number[16];
    int passes = !strcmp(argv[2], "pass"), ends[2], both[2], got;
    is(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    snprintf(number, sizeof number, "%d", ends[1]);
    int parent = getpid();
    if (passes && fork() == 0) {
        is(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent, "the parent's end");
        execl(argv[0], argv[0], "receives", number, NULL);
        is(0, "execl");
    }
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int listener = listens_at(argv[1]);
    set = epoll_create1(0);
    struct epoll_event of_pipe = {EPOLLIN, {.u64 = 7}};
    is(pipe(both) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, both[0], &of_pipe) == 0, "a pipe");
    is(write(both[1], "", 1) == 1, "write");
    puts("listens");
    fflush(stdout);
    add(accept(listener, NULL, NULL));
    puts("registered");
    fflush(stdout);
    sigwait(&signals, &got);
    if (passes) {
        pass(ends[0], set);
        pause();
        _exit(1);
    }
    snprintf(number, sizeof number, "%d", set);
    execl(argv[0], argv[0], "has", number, NULL);
    is(0, "execl");
    _exit(1);
}

__attribute__((noreturn)) static void *serves(void *listener) {
    char *bytes = malloc(ROOM);
    struct epoll_event events[4];
    int others = epoll_create1(0);
    struct epoll_event of_listener = {EPOLLIN, {.fd = (int)(long)listener}};
    is(epoll_ctl(others, EPOLL_CTL_ADD, of_listener.data.fd, &of_listener) == 0, "epoll_ctl");
    for (;;) {
        int found = epoll_wait(others, events, 4, -1);
        for (int at = 0; at < found; at++) {
            int fd = events[at].data.fd;
            if (fd != of_listener.data.fd) {
                if (!serve(fd, bytes)) close(fd);
                continue;
            }
            struct epoll_event event = {EPOLLIN, {.fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK)}};
            is(epoll_ctl(others, EPOLL_CTL_ADD, event.data.fd, &event) == 0, "epoll_ctl");
        }
    }
}

__attribute__((noreturn)) static void has_signals(char **argv) {
    pthread_t thread;
    long listener = listens_at(argv[1]);
    set = epoll_create1(0);
    puts("listens");
    fflush(stdout);
    add(accept(listener, NULL, NULL));
    is(pthread_create(&thread, NULL, serves, (void *)listener) == 0, "a thread");
    is_interrupted(argv[3]);
}

int main(int argc, char **argv) {
    is(argc >= 3, "the arguments");
    if (!strcmp(argv[1], "has")) looks(atoi(argv[2]));
    if (!strcmp(argv[1], "receives")) looks(pass(atoi(argv[2]), -1));
    if (argc == 3) hands_on(argv);
    if (!strcmp(argv[2], "signals")) has_signals(argv);
    int threads = atoi(argv[2]);
    const char *name = argv[3];
    kind = !strcmp(name, "edge") ? EPOLLET : !strcmp(name, "once") ? EPOLLONESHOT :
        !strcmp(name, "edge_once") ? EPOLLET | EPOLLONESHOT : !strcmp(name, "exclusive") ? EPOLLEXCLUSIVE : 0;
    is(threads <= 64 && sem_init(&released, 0, 0) == 0, "the arguments");
    set = epoll_create1(0);
    int listener = listens_at(argv[1]);
    if (argc > 4) {
        // The set and its first connection are a child's, too, which has it from here on.
        puts("listens");
        fflush(stdout);
        int first = accept(listener, NULL, NULL);
        char byte;
        is(read(first, &byte, 1) == 1, "the first byte");
        add(first);
        int parent = getpid(), child = fork();
        is(child >= 0, "fork");
        if (child > 0) {
            waitpid(child, NULL, 0);
            _exit(1);
        }
        is(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent, "the parent's end");
        begin(threads);
        puts("forked");
    } else {
        begin(threads);
        puts("listens");
    }
    fflush(stdout);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        is(fd >= 0, "accept");
        add(fd);
    }
}

// A server of one connection: when that says a byte it sets up io_uring, and echoes by that from SIGHUP on. Others that come
// before are closed.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROOM = 1 << 16 };
static struct io_uring ring;
static char bytes[ROOM];

static int done(struct io_uring_sqe *entry) {
    struct io_uring_cqe *found;
    (void)entry;
    if (io_uring_submit(&ring) < 0 || io_uring_wait_cqe(&ring, &found)) exit(2);
    int result = found->res;
    io_uring_cqe_seen(&ring, found);
    return result;
}

int main(int count, char **words) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(words[count - 1]))};
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 64)) return 1;
    puts("listens");
    fflush(stdout);
    int one = accept(listener, NULL, NULL);
    if (read(one, bytes, 1) != 1 || io_uring_queue_init(8, &ring, 0)) return 1;
    puts("ring");
    fflush(stdout);
    const struct timespec pause = {.tv_nsec = 10000000};
    fcntl(listener, F_SETFL, O_NONBLOCK);
    while (sigtimedwait(&set, NULL, &pause) != SIGHUP) {
        int other = accept(listener, NULL, NULL);
        if (other >= 0) close(other);
    }
    for (;;) {
        struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
        io_uring_prep_recv(entry, one, bytes, ROOM, 0);
        int left = done(entry), sent = 0;
        if (left <= 0) return left < 0;
        while (left > 0) {
            entry = io_uring_get_sqe(&ring);
            io_uring_prep_send(entry, one, bytes + sent, left, MSG_NOSIGNAL);
            int some = done(entry);
            if (some < 0) return 3;
            sent += some, left -= some;
        }
    }
}

// A server that echoes: connections are accepted by accept(2), and read and written by io_uring.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM (64 << 10)

struct connection {
    int fd, at, len, writes;
    char bytes[ROOM];
};

static struct io_uring ring;

static void next(struct connection *one) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    one->writes = one->at < one->len;
    if (one->writes)
        io_uring_prep_send(entry, one->fd, one->bytes + one->at, one->len - one->at, MSG_NOSIGNAL);
    else
        io_uring_prep_recv(entry, one->fd, one->bytes, ROOM, 0);
    io_uring_sqe_set_data(entry, one);
}

int main(int argc, char **argv) {
    int one = 1, listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(argv[1]))};
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 64) || io_uring_queue_init(64, &ring, 0)) return 1;
    // It is asked for readable listeners by the ring, and accepts what there is.
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring);
    io_uring_prep_poll_multishot(entry, listener, 1);
    io_uring_sqe_set_data(entry, NULL);
    printf("listens\n");
    for (;;) {
        struct io_uring_cqe *done;
        if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_wait_cqe(&ring, &done)) return 2;
        struct connection *this = io_uring_cqe_get_data(done);
        int result = done->res;
        io_uring_cqe_seen(&ring, done);
        if (!this) {
            for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
                this = calloc(1, sizeof *this);
                this->fd = fd;
                next(this);
            }
            continue;
        }
        if (result <= 0) {
            close(this->fd);
            free(this);
            continue;
        } else if (this->writes) {
            this->at += result;
        } else {
            this->at = 0;
            this->len = result;
        }
        next(this);
    }
}

// A server that echoes, by edge-triggered epoll. It ends with a word if a connection is not what one of TCP is.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM (64 << 10)

struct connection {
    int fd, at, len, is_at_end;
    char bytes[ROOM];
};

static void is(int right, const char *what) {
    if (!right) {
        printf("wrong: %s, errno %d\n", what, errno);
        exit(1);
    }
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    is(getsockopt(fd, level, name, &value, &len) == 0 && len == sizeof value, "an option");
    return value;
}

static void look(int fd, const struct sockaddr_in6 *peer, socklen_t peer_len, int port) {
    struct sockaddr_in6 name;
    socklen_t len = sizeof name;
    is(getsockname(fd, (void *)&name, &len) == 0, "getsockname");
    is(len == sizeof name && name.sin6_family == AF_INET6 && ntohs(name.sin6_port) == port, "its name");
    len = sizeof name;
    is(getpeername(fd, (void *)&name, &len) == 0, "getpeername");
    is(len == peer_len && memcmp(&name, peer, len) == 0, "its peer's name");
    char little[4];
    len = sizeof little;
    is(getpeername(fd, (void *)little, &len) == 0 && len == peer_len, "a name where there is little room");
    is(getsockname(fd, NULL, &len) == -1 && errno == EFAULT, "a name at no address");
    is(option(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET6, "its domain");
    is(option(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP, "its protocol");
    is(option(fd, SOL_SOCKET, SO_ERROR) == 0, "its error");
    int one = 1;
    is(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    is(option(fd, IPPROTO_TCP, TCP_NODELAY) == 1, "TCP_NODELAY as it was set");
    is(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) == 0, "SO_KEEPALIVE");
    is(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NULL, sizeof one) == -1 && errno == EFAULT, "no value");
    struct tcp_info info;
    len = sizeof info;
    is(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0, "TCP_INFO");
    struct linger linger = {1, 5}, found = {0};
    is(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0, "SO_LINGER");
    len = sizeof found;
    is(getsockopt(fd, SOL_SOCKET, SO_LINGER, &found, &len) == 0 && found.l_linger == 5, "SO_LINGER as it was set");
    linger.l_onoff = 0;
    is(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0, "SO_LINGER again");
    is(connect(fd, (void *)peer, peer_len) == -1 && errno == EISCONN, "a connection that is one");
}

static void serve(struct connection *one) {
    for (;;) {
        while (one->at < one->len) {
            ssize_t sent = send(one->fd, one->bytes + one->at, one->len - one->at, MSG_NOSIGNAL);
            if (sent < 0 && errno == EAGAIN) return;
            if (sent < 0) goto end;
            one->at += sent;
        }
        if (one->is_at_end) goto end;
        ssize_t got = read(one->fd, one->bytes, ROOM);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            one->is_at_end = 1;
            one->at = one->len = 0;
            continue;
        }
        one->at = 0;
        one->len = got;
    }
end:
    close(one->fd);
    free(one);
}

int main(int argc, char **argv) {
    int port = atoi(argv[1]), one = 1, set = epoll_create1(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    is(bind(listener, (void *)&at, sizeof at) == 0 && listen(listener, 64) == 0, "listen");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
    printf("listens\n");
    for (;;) {
        struct epoll_event all[16];
        int count = epoll_wait(set, all, 16, -1);
        for (int at = 0; at < count; at++) {
            if (all[at].data.ptr) {
                serve(all[at].data.ptr);
                continue;
            }
            for (;;) {
                struct sockaddr_in6 peer;
                socklen_t len = sizeof peer;
                int fd = accept4(listener, (void *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd < 0) break;
                look(fd, &peer, len, port);
                struct connection *new = calloc(1, sizeof *new);
                new->fd = fd;
                event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                event.data.ptr = new;
                epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
            }
        }
    }
}

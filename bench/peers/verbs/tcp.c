/* The same over the kernel's TCP sockets, which block: large writes, small ones, and small ones there and back. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer.h"

static char buffer[LARGE];

static struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	CHECK(inet_pton(AF_INET, host, &to.sin_addr) == 1);
	return to;
}

static void at_once(int socket)
{
	int on = 1;
	CHECK(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
}

static void write_all(int socket, const char *from, size_t len)
{
	while (len > 0) {
		ssize_t sent = write(socket, from, len);
		CHECK(sent > 0);
		from += sent;
		len -= sent;
	}
}

void tcp_serve(enum kind kind, const char *host)
{
	struct sockaddr_in at = address(host, "0");
	socklen_t len = sizeof at;
	char line[16];
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
	CHECK(listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	snprintf(line, sizeof line, "%d", ntohs(at.sin_port));
	say(line);
	int socket = accept(listener, NULL, NULL);
	CHECK(socket >= 0);
	at_once(socket);
	ssize_t got, unfinished = 0;
	size_t most = kind == LATENCY ? SMALL : sizeof buffer;
	while ((got = read(socket, buffer, most)) > 0) {
		/* The last byte of a phase is 1: it is answered. */
		unfinished = (unfinished + got) % SMALL;
		if (kind == LATENCY ? unfinished == 0 : buffer[got - 1] == 1)
			write_all(socket, buffer, kind == LATENCY ? SMALL : 1);
	}
}

/* One phase: as much as there is time for, until the server has all of it. */
static void phase(enum kind kind, int socket, uint64_t duration, uint64_t *bytes, uint64_t *messages)
{
	size_t len = kind == WRITE ? LARGE : SMALL;
	uint64_t begun = now(), last = begun;
	while (last < begun + duration) {
		write_all(socket, buffer, len);
		if (kind == LATENCY) {
			size_t got = 0;
			while (got < SMALL) {
				ssize_t some = read(socket, buffer + got, SMALL - got);
				CHECK(some > 0);
				got += some;
			}
		}
		uint64_t at = now();
		if (kind == LATENCY)
			took(at - last);
		last = at;
		*bytes += len;
		*messages += 1;
	}
	if (kind != LATENCY) {
		char answer, end = 1;
		write_all(socket, &end, 1);
		CHECK(read(socket, &answer, 1) == 1);
	}
}

void tcp_run(enum kind kind, const char *host, const char *port, uint64_t duration)
{
	struct sockaddr_in to = address(host, port);
	uint64_t bytes = 0, messages = 0;
	int socket_ = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(socket_, (struct sockaddr *)&to, sizeof to) == 0);
	at_once(socket_);
	phase(kind, socket_, duration / 10, &bytes, &messages);
	say("ready");
	while (heard()) {
		bytes = messages = 0;
		forget();
		uint64_t begun = now();
		phase(kind, socket_, duration, &bytes, &messages);
		tell(bytes, messages, now() - begun);
	}
}

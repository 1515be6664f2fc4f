/* Connections by sockets of the kernel's TCP, which do not block, as the paper's (section 4.2). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wan.h"

enum { LINE = 16 };

static struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	CHECK(inet_pton(AF_INET, host, &to.sin_addr) == 1);
	return to;
}

static void set_up(int socket)
{
	int on = 1;
	CHECK(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	CHECK(fcntl(socket, F_SETFL, O_NONBLOCK) == 0);
}

void sockets_accept(const struct asked *asked, int *sockets)
{
	struct sockaddr_in at = address(asked->host, "0");
	socklen_t len = sizeof at;
	char line[LINE];
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
	CHECK(listen(listener, CLIENTS) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	snprintf(line, sizeof line, "%d", ntohs(at.sin_port));
	say(line);
	for (int i = 0; i < asked->connections; i++) {
		CHECK((sockets[i] = accept(listener, NULL, NULL)) >= 0);
		set_up(sockets[i]);
	}
}

void sockets_connect(const struct asked *asked, int *sockets)
{
	struct sockaddr_in to = address(asked->host, asked->port);
	for (int i = 0; i < asked->connections; i++) {
		CHECK((sockets[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		CHECK(connect(sockets[i], (struct sockaddr *)&to, sizeof to) == 0);
		set_up(sockets[i]);
	}
}

size_t send_some(int socket, const unsigned char *from, size_t len)
{
	ssize_t sent = send(socket, from, len, MSG_NOSIGNAL);
	/* The peer is gone when a run is over. */
	if (sent < 0 && errno != EAGAIN)
		exit(0);
	return sent < 0 ? 0 : sent;
}

void send_all(int socket, const unsigned char *from, size_t len)
{
	while (len > 0) {
		size_t sent = send_some(socket, from, len);
		if (sent == 0)
			yield();
		from += sent;
		len -= sent;
	}
}

int receive_all(int socket, unsigned char *to, size_t len)
{
	while (len > 0) {
		ssize_t got = recv(socket, to, len, 0);
		if (got < 0 && errno == EAGAIN) {
			yield();
			continue;
		}
		if (got <= 0)
			return 0;
		to += got;
		len -= got;
	}
	return 1;
}

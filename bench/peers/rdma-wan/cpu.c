/* A server that computes while clients send to it without pause (section 4.4). */
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wan.h"

enum { WRITES = 4 /* of a connection at once */ };

static const struct asked *asked_for;
static struct verbs verbs[CLIENTS];
static int sockets[CLIENTS];
static uint64_t bytes_sent;

/* Takes what comes, asleep where nothing does. */
static void *receive(void *unused)
{
	struct pollfd polled[CLIENTS];
	unsigned char *to = malloc(asked_for->bytes);
	(void)unused;
	CHECK(to);
	for (int i = 0; i < asked_for->connections; i++)
		polled[i] = (struct pollfd){ .fd = sockets[i], .events = POLLIN };
	for (;;) {
		CHECK(poll(polled, asked_for->connections, -1) >= 0);
		for (int i = 0; i < asked_for->connections; i++)
			if (polled[i].revents && recv(sockets[i], to, asked_for->bytes, 0) == 0)
				return NULL;
	}
}

void cpu_serve(const struct asked *asked, int is_verbs)
{
	asked_for = asked;
	if (asked->connections > 0 && is_verbs) {
		verbs_accept(asked, asked->bytes * asked->connections, verbs);
	} else if (asked->connections > 0) {
		pthread_t thread;
		sockets_accept(asked, sockets);
		CHECK(pthread_create(&thread, NULL, receive, NULL) == 0);
	}
	stay_on(asked->cpu);
	say("ready");
	while (heard()) {
		uint64_t begun = now(), before = own_cpu();
		compute(asked->rounds);
		uint64_t took = now() - begun;
		/* In place of bytes, the CPU time. */
		tell(own_cpu() - before, 1, took);
	}
}

/* Messages of one client, which blocks. */
static void *send_messages(void *socket)
{
	unsigned char *from = calloc(1, asked_for->bytes);
	struct pollfd polled = { .fd = *(int *)socket, .events = POLLOUT };
	CHECK(from);
	for (size_t at = 0;;) {
		size_t sent = send_some(*(int *)socket, from + at, asked_for->bytes - at);
		if (sent == 0)
			CHECK(poll(&polled, 1, -1) >= 0);
		at = (at + sent) % asked_for->bytes;
		__atomic_fetch_add(&bytes_sent, sent, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Messages of all clients. */
static void *write_messages(void *unused)
{
	(void)unused;
	for (int i = 0; i < asked_for->connections; i++)
		for (int n = 0; n < WRITES; n++)
			post(&verbs[i], IBV_WR_RDMA_WRITE, 0, 0, asked_for->bytes, 1);
	for (;;) {
		struct ibv_wc wc = next_completion();
		post((struct verbs *)(uintptr_t)wc.wr_id, IBV_WR_RDMA_WRITE, 0, 0, asked_for->bytes, 1);
		__atomic_fetch_add(&bytes_sent, asked_for->bytes, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Sends when it is told to, and tells after each further line how much went out. */
void cpu_run(const struct asked *asked, int is_verbs)
{
	pthread_t thread;
	asked_for = asked;
	if (is_verbs)
		verbs_connect(asked, asked->bytes * asked->connections, verbs);
	else
		sockets_connect(asked, sockets);
	say("ready");
	if (!heard())
		return;
	if (is_verbs)
		CHECK(pthread_create(&thread, NULL, write_messages, NULL) == 0);
	for (int i = 0; i < asked->connections && !is_verbs; i++)
		CHECK(pthread_create(&thread, NULL, send_messages, &sockets[i]) == 0);
	do {
		uint64_t bytes = __atomic_load_n(&bytes_sent, __ATOMIC_RELAXED);
		tell(bytes, bytes / asked->bytes, now());
	} while (heard());
}

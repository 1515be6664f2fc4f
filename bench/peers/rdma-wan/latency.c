/* Ping-pong (section 4.1), by RDMA writes or sockets; the client computes between ping and pong if it is asked to
 * (section 4.2). Messages have a number at both of their ends. */
#include <unistd.h>

#include "wan.h"

enum { NUMBERS = 251, LEAST_COMPUTED = 2 };

/* A message of either way. */
static unsigned char *message[2];
static struct verbs verbs;
static int connection;

static void number(unsigned char *of, size_t bytes, uint64_t n)
{
	of[0] = of[bytes - 1] = 1 + n % NUMBERS;
}

static void wait_for(const struct asked *asked, uint64_t n)
{
	unsigned char is = 1 + n % NUMBERS;
	/* The last byte is written after all others. */
	while (__atomic_load_n(&message[0][asked->bytes - 1], __ATOMIC_ACQUIRE) != is)
		yield();
	CHECK(message[0][0] == is);
}

static void write_message(const struct asked *asked, uint64_t n)
{
	int is_signaled = n % UNSIGNALED == 0;
	number(message[1], asked->bytes, n);
	if (is_signaled && n > 0)
		next_completion();
	post(&verbs, IBV_WR_RDMA_WRITE, asked->bytes, 0, asked->bytes, is_signaled);
}

static void prepare(const struct asked *asked)
{
	unsigned char *both = region;
	if (!both)
		CHECK((both = calloc(2, asked->bytes)));
	message[0] = both;
	message[1] = both + asked->bytes;
}

void latency_serve(const struct asked *asked, int is_verbs)
{
	if (is_verbs)
		verbs_accept(asked, 2 * asked->bytes, &verbs);
	else
		sockets_accept(asked, &connection);
	prepare(asked);
	for (uint64_t n = 0;; n++) {
		if (is_verbs) {
			wait_for(asked, n);
			write_message(asked, n);
		} else {
			if (!receive_all(connection, message[0], asked->bytes))
				return;
			send_all(connection, message[0], asked->bytes);
		}
	}
}

/* One there and back, with so much computation. What that took of the CPU is returned. */
static uint64_t ping_pong(const struct asked *asked, int is_verbs, uint64_t n, uint64_t rounds)
{
	size_t sent = asked->bytes;
	if (is_verbs) {
		write_message(asked, n);
	} else {
		number(message[1], asked->bytes, n);
		sent = send_some(connection, message[1], asked->bytes);
	}
	uint64_t before = own_cpu();
	if (rounds)
		compute(rounds);
	uint64_t computed = own_cpu() - before;
	if (is_verbs) {
		wait_for(asked, n);
	} else {
		send_all(connection, message[1] + sent, asked->bytes - sent);
		CHECK(receive_all(connection, message[0], asked->bytes));
		CHECK(memcmp(message[0], message[1], asked->bytes) == 0);
	}
	return computed;
}

void latency_run(const struct asked *asked, int is_verbs)
{
	uint64_t n = 0, computed = 0, messages = 0, least = asked->rounds ? LEAST_COMPUTED : LEAST;
	if (is_verbs)
		verbs_connect(asked, 2 * asked->bytes, &verbs);
	else
		sockets_connect(asked, &connection);
	prepare(asked);
	for (; n < LEAST; n++)
		ping_pong(asked, is_verbs, n, 0);
	say("ready");
	if (!heard())
		return;
	uint64_t begun = now(), last = begun;
	while (last < begun + asked->duration || messages < least) {
		computed += ping_pong(asked, is_verbs, n++, asked->rounds);
		uint64_t at = now();
		took(at - last);
		last = at;
		messages++;
	}
	/* In place of bytes, the computation's time. */
	tell(computed, messages, last - begun);
	/* The connection stays until it has been looked at. */
	heard();
}

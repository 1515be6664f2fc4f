/* Fetching from a node that computes (section 4.3): by RDMA read, or by a request that the node answers when it has
 * computed. */
#include <unistd.h>

#include "wan.h"

enum { REQUEST = 8, FILL = 0x5a };

void progress_serve(const struct asked *asked, int is_verbs)
{
	static struct verbs verbs;
	static unsigned char request[REQUEST];
	int connection;
	if (is_verbs) {
		verbs_accept(asked, asked->bytes, &verbs);
		memset(region, FILL, asked->bytes);
		say("filled");
		for (;;) {
			/* It computes without pause. */
			if (asked->rounds)
				compute(asked->rounds);
			else
				pause();
		}
	}
	unsigned char *answer = malloc(asked->bytes);
	CHECK(answer);
	memset(answer, FILL, asked->bytes);
	sockets_accept(asked, &connection);
	say("filled");
	while (receive_all(connection, request, REQUEST)) {
		compute(asked->rounds);
		send_all(connection, answer, asked->bytes);
	}
}

static void fetch(const struct asked *asked, struct verbs *verbs, int connection, unsigned char *to)
{
	static const unsigned char request[REQUEST];
	to[0] = to[asked->bytes - 1] = 0;
	if (verbs) {
		post(verbs, IBV_WR_RDMA_READ, 0, 0, asked->bytes, 1);
		next_completion();
	} else {
		send_all(connection, request, REQUEST);
		CHECK(receive_all(connection, to, asked->bytes));
	}
	CHECK(to[0] == FILL && to[asked->bytes - 1] == FILL);
}

void progress_run(const struct asked *asked, int is_verbs)
{
	static struct verbs verbs;
	struct verbs *by = is_verbs ? &verbs : NULL;
	int connection = -1;
	uint64_t messages = 0;
	if (is_verbs)
		verbs_connect(asked, asked->bytes, &verbs);
	else
		sockets_connect(asked, &connection);
	unsigned char *to = is_verbs ? region : malloc(asked->bytes);
	say("connected");
	if (!heard())
		return;
	for (int i = 0; i < LEAST; i++)
		fetch(asked, by, connection, to);
	say("ready");
	if (!heard())
		return;
	uint64_t begun = now(), last = begun;
	while (last < begun + asked->duration || messages < LEAST) {
		fetch(asked, by, connection, to);
		uint64_t at = now();
		took(at - last);
		last = at;
		messages++;
	}
	tell(messages * asked->bytes, messages, last - begun);
	/* The connection stays until it has been looked at. */
	heard();
}

/* Messages whose sender does not know where they belong (section 5): by a rendezvous with RDMA write or RDMA read
 * (figure 9), or by eager copies through buffers that are registered beforehand. There and back. */
#include <unistd.h>

#include "wan.h"

enum { START, REPLY, FIN };
enum { SLOTS_EACH_WAY = 8 };

struct control { uint32_t kind, rkey; uint64_t addr, number; };

/* The own region: the message, where it comes, controls to send and to receive; of eager copies the buffers. */
static struct verbs verbs;
static size_t incoming, sending, receiving, total;
static unsigned char *user_in, *user_out;

static void lay_out(const struct asked *asked)
{
	int is_eager = !strcmp(asked->what, "eager");
	size_t slot = is_eager ? asked->bytes : sizeof(struct control);
	incoming = asked->bytes;
	sending = 2 * asked->bytes;
	receiving = sending + SLOTS_EACH_WAY * slot;
	total = receiving + SLOTS_EACH_WAY * slot;
}

static void prepare(const struct asked *asked)
{
	int is_eager = !strcmp(asked->what, "eager");
	size_t slot = is_eager ? asked->bytes : sizeof(struct control);
	user_out = region;
	user_in = region + incoming;
	for (int i = 0; i < SLOTS_EACH_WAY; i++)
		post_receive(&verbs, receiving + i * slot, slot);
}

/* Where the next message has come; other completions are passed over. */
static size_t next_message(void)
{
	for (;;) {
		struct ibv_wc wc = next_completion();
		if (wc.opcode == IBV_WC_RECV)
			return wc.wr_id;
	}
}

static void tell_peer(uint32_t kind, size_t at, uint64_t number)
{
	static uint64_t sent;
	size_t slot = sending + sent++ % SLOTS_EACH_WAY * sizeof(struct control);
	struct control control = { kind, memory->rkey, (uintptr_t)region + at, number };
	memcpy(region + slot, &control, sizeof control);
	post_to(&verbs, IBV_WR_SEND, slot, (struct window){ 0, 0 }, sizeof control, 1);
}

static struct control hear_peer(uint32_t kind)
{
	struct control control;
	size_t at = next_message();
	memcpy(&control, region + at, sizeof control);
	post_receive(&verbs, at, sizeof control);
	CHECK(control.kind == kind);
	return control;
}

static void stamp(unsigned char *message, size_t bytes, uint64_t number)
{
	message[0] = message[bytes - 1] = 1 + number % 251;
}

static void arrived(const struct asked *asked, uint64_t number)
{
	unsigned char is = 1 + number % 251;
	CHECK(user_in[0] == is && user_in[asked->bytes - 1] == is);
}

static void send_message(const struct asked *asked, uint64_t number)
{
	stamp(user_out, asked->bytes, number);
	if (!strcmp(asked->what, "eager")) {
		static uint64_t sent;
		size_t slot = sending + sent++ % SLOTS_EACH_WAY * asked->bytes;
		memcpy(region + slot, user_out, asked->bytes);
		post_to(&verbs, IBV_WR_SEND, slot, (struct window){ 0, 0 }, asked->bytes, 1);
		return;
	}
	tell_peer(START, 0, number);
	if (!strcmp(asked->what, "rendezvous_read"))
		return;
	struct control reply = hear_peer(REPLY);
	post_to(&verbs, IBV_WR_RDMA_WRITE, 0, (struct window){ reply.addr, reply.rkey }, asked->bytes, 0);
	tell_peer(FIN, 0, number);
}

static void receive_message(const struct asked *asked, uint64_t number)
{
	if (!strcmp(asked->what, "eager")) {
		size_t at = next_message();
		memcpy(user_in, region + at, asked->bytes);
		post_receive(&verbs, at, asked->bytes);
	} else if (!strcmp(asked->what, "rendezvous_read")) {
		/* Before the first message there is none that could have been fetched. */
		if (number > 1)
			hear_peer(FIN);
		struct control start = hear_peer(START);
		post_to(&verbs, IBV_WR_RDMA_READ, incoming, (struct window){ start.addr, start.rkey },
			asked->bytes, 1);
		while (next_completion().opcode != IBV_WC_RDMA_READ)
			;
		tell_peer(FIN, 0, number);
	} else {
		hear_peer(START);
		tell_peer(REPLY, incoming, number);
		CHECK(hear_peer(FIN).number == number);
	}
	arrived(asked, number);
}

/* Messages are counted from 1, those of both ways together. */
void rendezvous_serve(const struct asked *asked)
{
	lay_out(asked);
	verbs_accept(asked, total, &verbs);
	prepare(asked);
	say("filled");
	for (uint64_t number = 1;; number += 2) {
		receive_message(asked, number);
		send_message(asked, number + 1);
	}
}

void rendezvous_run(const struct asked *asked)
{
	uint64_t number = 1, messages = 0;
	lay_out(asked);
	verbs_connect(asked, total, &verbs);
	prepare(asked);
	say("connected");
	if (!heard())
		return;
	for (; messages < LEAST; messages++, number += 2) {
		send_message(asked, number);
		receive_message(asked, number + 1);
	}
	say("ready");
	if (!heard())
		return;
	uint64_t begun = now(), last = begun;
	for (messages = 0; last < begun + asked->duration || messages < LEAST; messages++, number += 2) {
		send_message(asked, number);
		receive_message(asked, number + 1);
		uint64_t at = now();
		took(at - last);
		last = at;
	}
	tell(messages * asked->bytes, messages, last - begun);
	/* The connection stays until it has been looked at. */
	heard();
}

/* A program of verbs, and of sockets, for `wharf bench rdma`. It sleeps where it waits: by completion events, or in
 * calls of a socket that blocks.
 *
 *   verbs-peer serve verbs|tcp KIND HOST                    tells its port, and serves one connection
 *   verbs-peer run verbs|tcp KIND HOST PORT MILLISECONDS    says "ready"; measures after each line that it reads
 *
 * KIND is write (64 KB each, 16 at once), rate (8 bytes each, inline, in lists of 32 of which the last is signaled), or
 * latency (8 bytes there and back). MEMORY=file in the environment has registered memory be that of a memfd. */
#define _GNU_SOURCE
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer.h"

enum { SENDS = 1024, RECEIVES = 64 };

struct window { uint64_t addr; uint32_t rkey; };

static struct rdma_event_channel *events;
static struct ibv_comp_channel *channel;
static struct ibv_cq *sends, *receives;
static struct ibv_mr *mr;
static unsigned char *region;

static struct rdma_cm_id *expect(enum rdma_cm_event_type type, struct window *window)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(events, &event) == 0);
	struct rdma_cm_id *id = event->id;
	CHECK(event->event == type);
	if (window && event->param.conn.private_data_len >= sizeof *window)
		memcpy(window, event->param.conn.private_data, sizeof *window);
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static unsigned char *take_memory(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS, file = -1;
	if (getenv("MEMORY")) {
		CHECK((file = memfd_create("verbs-peer", MFD_CLOEXEC)) >= 0);
		CHECK(ftruncate(file, REGION) == 0);
		flags = MAP_SHARED;
	}
	void *memory = mmap(NULL, REGION, PROT_READ | PROT_WRITE, flags, file, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

/* Only what is waited for asleep has events: completions of sends, or receives. */
static void prepare(struct rdma_cm_id *id, int sends_wake)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	CHECK(pd);
	region = take_memory();
	memset(region, 0, REGION);
	CHECK((mr = ibv_reg_mr(pd, region, REGION, access)));
	CHECK((channel = ibv_create_comp_channel(id->verbs)));
	CHECK((sends = ibv_create_cq(id->verbs, SENDS, NULL, sends_wake ? channel : NULL, 0)));
	CHECK((receives = ibv_create_cq(id->verbs, RECEIVES, NULL, channel, 0)));
	struct ibv_qp_init_attr attr = {
		.send_cq = sends, .recv_cq = receives, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = SMALL },
	};
	CHECK(rdma_create_qp(id, pd, &attr) == 0);
	if (sends_wake)
		CHECK(ibv_req_notify_cq(sends, 0) == 0);
	CHECK(ibv_req_notify_cq(receives, 0) == 0);
}

static void receive(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { .wr_id = 0 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* Completions of a queue, one at least: asleep until there is one. */
static int wait_for(struct ibv_cq *cq, struct ibv_wc *wc, int most)
{
	struct ibv_cq *of;
	void *context;
	for (;;) {
		int got = ibv_poll_cq(cq, most, wc);
		CHECK(got >= 0);
		if (got > 0)
			return got;
		CHECK(ibv_get_cq_event(channel, &of, &context) == 0);
		ibv_ack_cq_events(of, 1);
		CHECK(ibv_req_notify_cq(of, 0) == 0);
	}
}

/* The immediate data of the next message; 0 if the connection is over. */
static uint32_t next(struct ibv_qp *qp)
{
	struct ibv_wc wc;
	(void)qp;
	wait_for(receives, &wc, 1);
	return wc.status == IBV_WC_SUCCESS ? ntohl(wc.imm_data) : 0;
}

/* A small write that the peer is told of. */
static void write_and_tell(struct ibv_qp *qp, const struct window *to, uint32_t immediate, int is_signaled)
{
	struct ibv_sge sge = { (uintptr_t)region, SMALL, mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_INLINE | (is_signaled ? IBV_SEND_SIGNALED : 0),
		.imm_data = htonl(immediate),
		.wr.rdma = { to->addr + REGION - SMALL, to->rkey },
	}, *bad;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static void serve(enum kind kind, const char *host)
{
	struct rdma_cm_id *listener, *id;
	struct addrinfo *at;
	struct window to = { 0, 0 };
	char line[16];
	CHECK(getaddrinfo(host, NULL, NULL, &at) == 0);
	CHECK((events = rdma_create_event_channel()));
	CHECK(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, at->ai_addr) == 0);
	CHECK(rdma_listen(listener, 1) == 0);
	snprintf(line, sizeof line, "%d", ntohs(rdma_get_src_port(listener)));
	say(line);
	id = expect(RDMA_CM_EVENT_CONNECT_REQUEST, &to);
	prepare(id, 0);
	for (int i = 0; i < RECEIVES; i++)
		receive(id->qp);
	struct window own = { (uintptr_t)region, mr->rkey };
	struct rdma_conn_param param = { .private_data = &own, .private_data_len = sizeof own };
	CHECK(rdma_accept(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	uint32_t heard;
	for (uint64_t answers = 1; (heard = next(id->qp)) != 0; answers++) {
		struct ibv_wc wc[LIST];
		int is_signaled = answers % LIST == 0;
		uint32_t answer = heard == PING ? PING : all_there(kind, region) ? RIGHT : WRONG;
		write_and_tell(id->qp, &to, answer, is_signaled);
		receive(id->qp);
		if (is_signaled)
			while (ibv_poll_cq(sends, LIST, wc) == 0)
				;
	}
}

static void take(int got, struct ibv_wc *wc)
{
	for (int i = 0; i < got; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS);
}

/* Large writes: as many at once as there are places, a quarter of them signaled. */
static void large(struct ibv_qp *qp, const struct window *to, uint64_t end, uint64_t *messages)
{
	enum { EACH = 4 };
	struct ibv_wc wc[DEPTH];
	uint64_t posted = 0, done = 0;
	while (now() < end || posted % DEPTH) {
		while (posted - done < DEPTH) {
			uint32_t at = posted % DEPTH * LARGE;
			/* The end of the region belongs to what is told. */
			uint32_t len = at + LARGE == REGION ? LARGE - SMALL : LARGE;
			int is_signaled = (posted + 1) % EACH == 0;
			struct ibv_sge sge = { (uintptr_t)region + at, len, mr->lkey };
			struct ibv_send_wr wr = {
				.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				.send_flags = is_signaled ? IBV_SEND_SIGNALED : 0,
				.wr.rdma = { to->addr + at, to->rkey },
			}, *bad;
			CHECK(ibv_post_send(qp, &wr, &bad) == 0);
			posted++;
		}
		int got = wait_for(sends, wc, DEPTH);
		take(got, wc);
		done += (uint64_t)got * EACH;
	}
	while (done < posted) {
		int got = wait_for(sends, wc, DEPTH);
		take(got, wc);
		done += (uint64_t)got * EACH;
	}
	*messages += posted;
}

/* Small writes, as many as the queue has room for. */
static void small(struct ibv_qp *qp, const struct window *to, uint64_t end, uint64_t *messages)
{
	static uint64_t number;
	struct ibv_send_wr wr[LIST], *bad;
	struct ibv_sge sge[LIST];
	struct ibv_wc wc[SENDS / LIST];
	uint64_t posted = 0, done = 0, value[LIST];
	memset(wr, 0, sizeof wr);
	for (int i = 0; i < LIST; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)&value[i], SMALL, 0 };
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = IBV_SEND_INLINE;
		wr[i].wr.rdma.rkey = to->rkey;
		wr[i].next = i + 1 < LIST ? &wr[i + 1] : NULL;
	}
	wr[LIST - 1].send_flags |= IBV_SEND_SIGNALED;
	while (now() < end || posted < SLOTS) {
		while (posted - done + LIST <= SENDS - LIST) {
			for (int i = 0; i < LIST; i++) {
				wr[i].wr.rdma.remote_addr = to->addr + number % SLOTS * SMALL;
				value[i] = number++;
			}
			CHECK(ibv_post_send(qp, wr, &bad) == 0);
			posted += LIST;
		}
		int got = wait_for(sends, wc, SENDS / LIST);
		take(got, wc);
		done += (uint64_t)got * LIST;
	}
	while (done < posted) {
		int got = wait_for(sends, wc, SENDS / LIST);
		take(got, wc);
		done += (uint64_t)got * LIST;
	}
	*messages += posted;
}

static void ping_pong(struct ibv_qp *qp, const struct window *to, uint64_t end, uint64_t *messages)
{
	struct ibv_wc wc[LIST];
	uint64_t last = now();
	for (uint64_t sent = 1; last < end || (sent - 1) % LIST; sent++) {
		write_and_tell(qp, to, PING, sent % LIST == 0);
		CHECK(next(qp) == PING);
		uint64_t at = now();
		took(at - last);
		receive(qp);
		if (sent % LIST == 0) {
			int got;
			while ((got = ibv_poll_cq(sends, LIST, wc)) == 0)
				;
			take(got, wc);
		}
		last = at;
		*messages += 1;
	}
}

/* One phase, until the server has all of it. */
static void phase(enum kind kind, struct ibv_qp *qp, const struct window *to, uint64_t duration, uint64_t *messages)
{
	uint64_t end = now() + duration;
	struct ibv_wc wc;
	if (kind == LATENCY) {
		ping_pong(qp, to, end, messages);
		return;
	}
	(kind == WRITE ? large : small)(qp, to, end, messages);
	write_and_tell(qp, to, END, 1);
	wait_for(sends, &wc, 1);
	take(1, &wc);
	CHECK(next(qp) == RIGHT);
	receive(qp);
}

static void run(enum kind kind, const char *host, const char *port, uint64_t duration)
{
	struct rdma_cm_id *id;
	struct addrinfo *at;
	struct window to = { 0, 0 };
	uint64_t messages = 0;
	CHECK(getaddrinfo(host, port, NULL, &at) == 0);
	CHECK((events = rdma_create_event_channel()));
	CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, at->ai_addr, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	prepare(id, kind != LATENCY);
	fill(region);
	for (int i = 0; i < RECEIVES; i++)
		receive(id->qp);
	struct window own = { (uintptr_t)region, mr->rkey };
	struct rdma_conn_param param = { .private_data = &own, .private_data_len = sizeof own };
	CHECK(rdma_connect(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, &to);
	phase(kind, id->qp, &to, duration / 10, &messages);
	say("ready");
	while (heard()) {
		messages = 0;
		forget();
		uint64_t begun = now();
		phase(kind, id->qp, &to, duration, &messages);
		tell(messages * (kind == WRITE ? LARGE : SMALL), messages, now() - begun);
	}
	rdma_disconnect(id);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "serve")) {
		enum kind kind = kind_of(argv[3]);
		strcmp(argv[2], "tcp") ? serve(kind, argv[4]) : tcp_serve(kind, argv[4]);
		return 0;
	}
	CHECK(argc == 7 && !strcmp(argv[1], "run"));
	enum kind kind = kind_of(argv[3]);
	uint64_t duration = strtoul(argv[6], NULL, 10) * UINT64_C(1000000);
	strcmp(argv[2], "tcp") ? run(kind, argv[4], argv[5], duration)
			       : tcp_run(kind, argv[4], argv[5], duration);
	return 0;
}

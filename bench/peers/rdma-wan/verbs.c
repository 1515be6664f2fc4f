/* Connections by verbs. */
#include <netdb.h>
#include <unistd.h>

#include "wan.h"

enum { REQUESTS = 1024, READS = 4, LINE = 16 };

struct ibv_cq *completions;
struct ibv_mr *memory;
unsigned char *region;

static struct rdma_event_channel *events;
static struct ibv_pd *domain;

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

/* The first connection makes what all of them share. */
static void prepare(struct rdma_cm_id *id, size_t len)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (!domain) {
		CHECK((domain = ibv_alloc_pd(id->verbs)));
		CHECK(posix_memalign((void **)&region, 4096, len) == 0);
		memset(region, 0, len);
		CHECK((memory = ibv_reg_mr(domain, region, len, access)));
		CHECK((completions = ibv_create_cq(id->verbs, REQUESTS, NULL, NULL, 0)));
	}
	struct ibv_qp_init_attr attr = {
		.send_cq = completions, .recv_cq = completions, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2 * UNSIGNALED, .max_recv_wr = 2 * UNSIGNALED, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	CHECK(rdma_create_qp(id, domain, &attr) == 0);
}

static struct rdma_conn_param with(const struct window *own)
{
	return (struct rdma_conn_param){
		.private_data = own, .private_data_len = sizeof *own, .responder_resources = READS,
		.initiator_depth = READS,
	};
}

static struct window part(const struct asked *asked, size_t len, int number)
{
	size_t each = len / asked->connections;
	return (struct window){ (uintptr_t)region + number * each, memory->rkey };
}

void verbs_accept(const struct asked *asked, size_t len, struct verbs *connections)
{
	struct rdma_cm_id *listener, *id;
	struct addrinfo *at;
	char line[LINE];
	CHECK(getaddrinfo(asked->host, NULL, NULL, &at) == 0);
	CHECK((events = rdma_create_event_channel()));
	CHECK(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, at->ai_addr) == 0);
	CHECK(rdma_listen(listener, CLIENTS) == 0);
	snprintf(line, sizeof line, "%d", ntohs(rdma_get_src_port(listener)));
	say(line);
	for (int i = 0; i < asked->connections; i++) {
		id = expect(RDMA_CM_EVENT_CONNECT_REQUEST, &connections[i].peer);
		prepare(id, len);
		connections[i].qp = id->qp;
		struct window own = part(asked, len, i);
		struct rdma_conn_param param = with(&own);
		CHECK(rdma_accept(id, &param) == 0);
		expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	}
}

/* One after the other, so that the server's order is the client's. */
void verbs_connect(const struct asked *asked, size_t len, struct verbs *connections)
{
	struct rdma_cm_id *id;
	struct addrinfo *at;
	CHECK(getaddrinfo(asked->host, asked->port, NULL, &at) == 0);
	CHECK((events = rdma_create_event_channel()));
	for (int i = 0; i < asked->connections; i++) {
		CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(id, NULL, at->ai_addr, 2000) == 0);
		expect(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
		CHECK(rdma_resolve_route(id, 2000) == 0);
		expect(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
		prepare(id, len);
		connections[i].qp = id->qp;
		struct window own = part(asked, len, i);
		struct rdma_conn_param param = with(&own);
		CHECK(rdma_connect(id, &param) == 0);
		expect(RDMA_CM_EVENT_ESTABLISHED, &connections[i].peer);
	}
}

void post_to(struct verbs *to, enum ibv_wr_opcode opcode, size_t at, struct window there, size_t len, int is_signaled)
{
	struct ibv_sge sge = { (uintptr_t)region + at, len, memory->lkey };
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)to, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = is_signaled ? IBV_SEND_SIGNALED : 0, .wr.rdma = { there.addr, there.rkey },
	}, *bad;
	CHECK(ibv_post_send(to->qp, &wr, &bad) == 0);
	to->posted++;
}

void post(struct verbs *to, enum ibv_wr_opcode opcode, size_t at, size_t peer_at, size_t len, int is_signaled)
{
	struct window there = { to->peer.addr + peer_at, to->peer.rkey };
	post_to(to, opcode, at, there, len, is_signaled);
}

void post_receive(struct verbs *to, size_t at, size_t len)
{
	struct ibv_sge sge = { (uintptr_t)region + at, len, memory->lkey };
	struct ibv_recv_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(to->qp, &wr, &bad) == 0);
}

struct ibv_wc next_completion(void)
{
	struct ibv_wc wc;
	int got;
	while ((got = ibv_poll_cq(completions, 1, &wc)) == 0)
		yield();
	CHECK(got == 1);
	/* The peer is gone when a run is over. */
	if (wc.status != IBV_WC_SUCCESS)
		exit(0);
	return wc;
}

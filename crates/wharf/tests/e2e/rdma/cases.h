/* What programs share that do one case of several: connections of a process with itself, at an address that it is given. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "check.h"

enum { DEPTH = 8 };

static struct sockaddr_in address;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *near, *far;
static struct ibv_cq *cq;
static struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4 };

static inline struct rdma_cm_id *expect(struct rdma_event_channel *from, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(from, &event) == 0);
	struct rdma_cm_id *id = event->id;
	if (event->event != type) {
		printf("%s, not %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static inline int is_readable(struct rdma_event_channel *of, int timeout)
{
	struct pollfd fd = { .fd = of->fd, .events = POLLIN };
	return poll(&fd, 1, timeout);
}

static inline void make_qp(struct rdma_cm_id *id)
{
	if (!cq)
		CHECK((cq = ibv_create_cq(id->verbs, 8 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
}

static inline struct rdma_cm_id *resolve(void)
{
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

/* Near asks. */
static inline void ask(void)
{
	near = resolve();
	make_qp(near);
	CHECK(rdma_connect(near, &param) == 0);
}

static inline void accept_it(void)
{
	make_qp(far);
	CHECK(rdma_accept(far, &param) == 0);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
}

static inline void connect_both(void)
{
	ask();
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	accept_it();
}

static inline void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}

/* Whether the queue pair works: a write of no bytes. */
static inline int works(struct rdma_cm_id *id)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	int count;
	CHECK(ibv_post_send(id->qp, &wr, &bad) == 0);
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc.status == IBV_WC_SUCCESS;
}

struct test { const char *name; void (*call)(void); };

/* Listens at the address, does the case of this name, and says so. */
static inline int run(int argc, char **argv, const struct test *cases, size_t count)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* What does not come is an error, too. */
	alarm(110);
	CHECK(argc == 3);
	address.sin_family = AF_INET;
	CHECK(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
	CHECK(rdma_listen(listener, 8) == 0);
	address.sin_port = rdma_get_src_port(listener);
	for (size_t at = 0; at < count; at++) {
		if (!strcmp(argv[2], cases[at].name)) {
			cases[at].call();
			printf("done\n");
			return 0;
		}
	}
	printf("no such case\n");
	return 1;
}

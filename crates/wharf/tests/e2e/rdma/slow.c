/* A program of verbs for the end-to-end tests: a receiver that is slower than its sender.
 *
 *   slow serve PORT        receives SLOW messages, one every 200 ms, and then all others
 *   slow call HOST PORT    sends them, as fast as they are taken
 */
#include <netdb.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include "check.h"

/* More than TCP has room for at both ends. */
enum { LEN = 4096, COUNT = 3000, SLOW = 40, DEPTH = 64 };

static struct rdma_event_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint32_t buffer[DEPTH][LEN / 4];

static struct rdma_cm_id *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	struct rdma_cm_id *id = event->id;
	if (event->event != type) {
		printf("%s, not %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static void prepare(struct rdma_cm_id *id)
{
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	CHECK(pd);
	CHECK((mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE)));
	CHECK((cq = ibv_create_cq(id->verbs, 2 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(rdma_create_qp(id, pd, &attr) == 0);
}

static void completed(uint64_t number)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		usleep(100);
	CHECK(count == 1);
	if (wc.status != IBV_WC_SUCCESS) {
		printf("message %d: %s\n", (int)number, ibv_wc_status_str(wc.status));
		exit(1);
	}
	CHECK(wc.wr_id == number);
}

static void serve(const char *port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	CHECK(rdma_listen(id, 1) == 0);
	id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	prepare(id);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	CHECK(rdma_accept(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	for (uint64_t number = 0; number < COUNT; number++) {
		struct ibv_sge sge = { (uintptr_t)buffer[0], LEN, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;
		if (number < SLOW)
			usleep(200000);
		CHECK(ibv_post_recv(id->qp, &wr, &bad) == 0);
		completed(number);
		CHECK(buffer[0][0] == number && buffer[0][LEN / 4 - 1] == number);
	}
	printf("received\n");
	CHECK(rdma_disconnect(id) == 0);
	expect(RDMA_CM_EVENT_DISCONNECTED);
}

static void call(const char *host, const char *port)
{
	struct addrinfo *to;
	struct rdma_cm_id *id;
	CHECK(getaddrinfo(host, port, NULL, &to) == 0);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, to->ai_addr, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	prepare(id);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	CHECK(rdma_connect(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	for (uint64_t number = 0; number < COUNT + DEPTH; number++) {
		if (number >= DEPTH)
			completed(number - DEPTH);
		if (number >= COUNT)
			continue;
		uint32_t *message = buffer[number % DEPTH];
		message[0] = message[LEN / 4 - 1] = number;
		struct ibv_sge sge = { (uintptr_t)message, LEN, mr->lkey };
		struct ibv_send_wr wr = {
			.wr_id = number, .sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		}, *bad;
		CHECK(ibv_post_send(id->qp, &wr, &bad) == 0);
	}
	printf("sent\n");
	expect(RDMA_CM_EVENT_DISCONNECTED);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(argc > 2);
	CHECK((channel = rdma_create_event_channel()));
	if (!strcmp(argv[1], "serve"))
		serve(argv[2]);
	else
		call(argv[2], argv[3]);
	return 0;
}

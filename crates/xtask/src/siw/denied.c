/* What the peer of a program is told that does what it may not.
 *
 *   siw-denied serve PORT             lets one client write 64 bytes, and tells how the connection ends
 *   siw-denied write|read HOST PORT   does so with a key that is none, and succeeds if that fails */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

enum { LEN = 64 };

struct window { uint64_t addr; uint32_t rkey; };

#define CHECK(is_so) \
	do { \
		if (!(is_so)) { \
			printf("line %d: %s\n", __LINE__, #is_so); \
			exit(1); \
		} \
	} while (0)

static struct rdma_event_channel *events;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char buffer[LEN];

static struct rdma_cm_id *expect(enum rdma_cm_event_type type, struct window *window)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(events, &event) == 0);
	struct rdma_cm_id *id = event->id;
	if (event->event != type) {
		printf("%s, not %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	if (window && event->param.conn.private_data_len >= sizeof *window)
		memcpy(window, event->param.conn.private_data, sizeof *window);
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static void prepare(struct rdma_cm_id *id)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	CHECK(pd);
	CHECK((mr = ibv_reg_mr(pd, buffer, LEN, access)));
	CHECK((cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0)));
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(rdma_create_qp(id, pd, &attr) == 0);
}

static int complete(void)
{
	struct ibv_wc wc;
	int has;
	while ((has = ibv_poll_cq(cq, 1, &wc)) == 0)
		usleep(1000);
	CHECK(has == 1);
	printf("completion: %s\n", ibv_wc_status_str(wc.status));
	return wc.status;
}

static int serve(const char *port)
{
	struct rdma_cm_id *listener;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	CHECK(rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0);
	CHECK(rdma_listen(listener, 1) == 0);
	struct rdma_cm_id *id = expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	prepare(id);
	struct ibv_sge sge = { (uintptr_t)buffer, LEN, mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(id->qp, &receive, &bad) == 0);
	struct window window = { (uintptr_t)buffer, mr->rkey };
	struct rdma_conn_param param = {
		.private_data = &window, .private_data_len = sizeof window,
		.responder_resources = 1, .initiator_depth = 1,
	};
	CHECK(rdma_accept(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	int status = complete();
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	for (int at = 0; at < LEN; at++)
		CHECK(buffer[at] == 0);
	printf("the connection has ended, and nothing was written\n");
	return status == IBV_WC_SUCCESS;
}

static int ask(int opcode, const char *host, const char *port)
{
	struct rdma_cm_id *id;
	struct addrinfo *to;
	CHECK(getaddrinfo(host, port, NULL, &to) == 0);
	CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, to->ai_addr, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	prepare(id);
	memset(buffer, 1, LEN);
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	CHECK(rdma_connect(id, &param) == 0);
	struct window window = { 0 };
	expect(RDMA_CM_EVENT_ESTABLISHED, &window);
	struct ibv_sge sge = { (uintptr_t)buffer, LEN, mr->lkey };
	struct ibv_send_wr wr = {
		.opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = window.addr, .rkey = window.rkey ^ 0x5500 },
	}, *bad;
	/* Linux 6.1 stops at a BUG of iw_cm if this comes at once with what says that the client is ready: siw_rtr_data_ready
	 * tells then that the connection has ended which it has never told of. */
	usleep(500000);
	CHECK(ibv_post_send(id->qp, &wr, &bad) == 0);
	int status = complete();
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	/* A write is over when it is sent; of a read the peer's answer is none. */
	return opcode == IBV_WR_RDMA_READ && status == IBV_WC_SUCCESS;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	CHECK((events = rdma_create_event_channel()));
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "write"))
		return ask(IBV_WR_RDMA_WRITE, argv[2], argv[3]);
	if (argc == 4 && !strcmp(argv[1], "read"))
		return ask(IBV_WR_RDMA_READ, argv[2], argv[3]);
	return 2;
}

/* A program of verbs for the end-to-end tests: what is destroyed waits until the events that were read of it are
 * acknowledged, so that whoever handles one has the object of which it tells.
 *
 *   waits ADDRESS */
#include "itself.h"

static int is_acknowledged;

static void soon(void)
{
	usleep(50000);
	__atomic_store_n(&is_acknowledged, 1, __ATOMIC_SEQ_CST);
}

static void *asynchronous(void *event)
{
	soon();
	ibv_ack_async_event(event);
	return NULL;
}

static void *completion(void *cq)
{
	ibv_ack_cq_events(cq, 1);
	soon();
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void *connection(void *event)
{
	soon();
	CHECK(rdma_ack_cm_event(event) == 0);
	return NULL;
}

static pthread_t thread;

static void begin_to_wait(void *(*acknowledge)(void *), void *what)
{
	is_acknowledged = 0;
	CHECK(pthread_create(&thread, NULL, acknowledge, what) == 0);
}

static void has_waited(const char *what)
{
	CHECK(__atomic_load_n(&is_acknowledged, __ATOMIC_SEQ_CST));
	CHECK(pthread_join(thread, NULL) == 0);
	printf("%s\n", what);
}

static void queue_pair(void)
{
	struct ibv_async_event event;
	for (;;) {
		CHECK(ibv_get_async_event(near.id->verbs, &event) == 0);
		if (event.event_type == IBV_EVENT_QP_ACCESS_ERR)
			break;
		ibv_ack_async_event(&event);
	}
	CHECK(event.element.qp == far.id->qp);
	begin_to_wait(asynchronous, &event);
	rdma_destroy_qp(far.id);
	has_waited("queue pair");
}

/* Two events, of which one alone is not enough. */
static void completion_queue(void)
{
	struct ibv_comp_channel *completions = ibv_create_comp_channel(near.id->verbs);
	struct ibv_cq *cq = ibv_create_cq(near.id->verbs, 8, NULL, completions, 0), *whose;
	CHECK(completions && cq);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(near.pd, &attr);
	CHECK(qp);
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
		struct ibv_wc wc;
		void *context;
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
		CHECK(ibv_get_cq_event(completions, &whose, &context) == 0 && whose == cq);
		CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
	}
	CHECK(ibv_destroy_qp(qp) == 0);
	begin_to_wait(completion, cq);
	CHECK(ibv_destroy_cq(cq) == 0);
	has_waited("completion queue");
	CHECK(ibv_destroy_comp_channel(completions) == 0);
}

static void identifier(void)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == RDMA_CM_EVENT_DISCONNECTED);
	struct rdma_cm_id *id = event->id;
	rdma_destroy_qp(id);
	begin_to_wait(connection, event);
	CHECK(rdma_destroy_id(id) == 0);
	has_waited("identifier");
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	alarm(110);
	begin(argv[1]);
	connect_both();
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey ^ 1);
	CHECK(status(&wr, sge(&near, 0, 8)) == IBV_WC_REM_ACCESS_ERR);
	queue_pair();
	completion_queue();
	identifier();
	printf("all\n");
	return 0;
}

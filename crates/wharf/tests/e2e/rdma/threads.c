/* A program of verbs for the end-to-end tests: it ends while threads of its are in verbs, and while it has traffic.
 *
 *   threads ADDRESS */
#include "itself.h"

static struct ibv_comp_channel *idle;
static int rounds;

static void *posts(void *none)
{
	for (;;) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey), *bad;
		struct ibv_sge element = sge(&near, 0, 4096);
		struct ibv_wc wc;
		wr.sg_list = &element;
		wr.num_sge = 1;
		wr.send_flags = IBV_SEND_SIGNALED;
		ibv_post_send(near.id->qp, &wr, &bad);
		if (ibv_poll_cq(near.cq, 1, &wc) == 1)
			__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
	}
	return none;
}

static void *registers(void *none)
{
	for (;;) {
		struct ibv_mr *mr = ibv_reg_mr(near.pd, near.buffer, 4096, ALL);
		if (mr)
			ibv_dereg_mr(mr);
		__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
	}
	return none;
}

static void *waits_for_completions(void *none)
{
	struct ibv_cq *cq;
	void *context;
	ibv_get_cq_event(idle, &cq, &context);
	return none;
}

static void *waits_for_errors(void *none)
{
	struct ibv_async_event event;
	ibv_get_async_event(near.id->verbs, &event);
	return none;
}

static void *waits_for_connections(void *none)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(channel, &event);
	return none;
}

int main(int argc, char **argv)
{
	void *(*const all[])(void *) = { posts, registers, waits_for_completions, waits_for_errors,
					 waits_for_connections };
	pthread_t thread;
	CHECK(argc == 2);
	alarm(100);
	begin(argv[1]);
	connect_both();
	CHECK((idle = ibv_create_comp_channel(near.id->verbs)));
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		CHECK(pthread_create(&thread, NULL, all[i], NULL) == 0);
	while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < 100)
		usleep(1000);
	printf("ends\n");
	return 0;
}

/* A program of verbs for the end-to-end tests: what their man pages say of calls beyond what they are for.
 *
 *   abi ADDRESS CASE   does one case, over connections of this process with itself, and says "done" */
#include "cases.h"

static unsigned char buffer[4096];

/* The status of the next completion. */
static enum ibv_wc_status next_status(void)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc.status;
}

/* Nothing of what is built is posted if it cannot all be. */
static void whole_batches(void)
{
	struct ibv_sge two[2] = { { (uintptr_t)buffer, 8, 0 }, { (uintptr_t)buffer, 8, 0 } };
	struct ibv_wc wc;
	near = resolve();
	CHECK((cq = ibv_create_cq(near->verbs, 8 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = near->pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_PD,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	CHECK(rdma_create_qp_ex(near, &attr) == 0);
	CHECK(rdma_connect(near, &param) == 0);
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	accept_it();
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(near->qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	/* The second has too many elements. */
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, 0, 0);
	ibv_wr_rdma_write(qp, 0, 0);
	ibv_wr_set_sge_list(qp, 2, two);
	CHECK(ibv_wr_complete(qp) == EINVAL);
	/* There are more than have room. */
	ibv_wr_start(qp);
	for (int i = 0; i <= DEPTH; i++)
		ibv_wr_rdma_write(qp, 0, 0);
	CHECK(ibv_wr_complete(qp) == ENOMEM);
	CHECK(works(near));
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	/* All places are free. */
	ibv_wr_start(qp);
	for (int i = 0; i < DEPTH; i++)
		ibv_wr_rdma_write(qp, 0, 0);
	CHECK(ibv_wr_complete(qp) == 0);
	for (int i = 0; i < DEPTH; i++)
		CHECK(next_status() == IBV_WC_SUCCESS);
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

/* Answers that are yes or no. */
static void answers(void)
{
	connect_both();
	CHECK(ibv_query_qp_data_in_order(near->qp, IBV_WR_RDMA_WRITE, 0) == 0);
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

int main(int argc, char **argv)
{
	static const struct test cases[] = {
		{ "whole_batches", whole_batches }, { "answers", answers },
	};
	return run(argc, argv, cases, sizeof cases / sizeof *cases);
}

/* A program of verbs for the end-to-end tests: operations and ways to be told that the other programs have not.
 *
 *   operations ADDRESS   does all, over connections of this process with itself, and says what it has done */
#include "itself.h"

/* What is posted is not polled for before the peer has it: a read comes behind it. */
static void round_trip(void)
{
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey);
	wr.wr_id = 999;
	wr.send_flags = IBV_SEND_SIGNALED;
	struct ibv_sge element = sge(&near, LEN - 8, 8);
	post(&wr, &element, 1);
	struct ibv_wc wc;
	do {
		wc = next(&near);
		CHECK(wc.status == IBV_WC_SUCCESS);
	} while (wc.wr_id != 999);
}

static uint32_t bind_window(struct ibv_mw *window, uint64_t addr, uint64_t length)
{
	uint32_t key = ibv_inc_rkey(window->rkey);
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.bind_mw.mw = window;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		far.mr, addr, length, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
	};
	CHECK(ibv_post_send(far.id->qp, &wr, &bad) == 0);
	struct ibv_wc wc = next(&far);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW);
	return key;
}

/* Completions that are read field by field. */
static void fields(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = CQE, .cq_context = &near, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_cq_init_attr_ex clock = { .cqe = CQE, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	CHECK(!ibv_create_cq_ex(listener->verbs, &clock) && errno == EOPNOTSUPP);
	struct ibv_cq_ex *cq = ibv_create_cq_ex(listener->verbs, &attr);
	CHECK(cq && cq->cq_context == &near);
	far_cq = ibv_cq_ex_to_cq(cq);
	connect_both();
	far_cq = NULL;
	struct ibv_mw *window = ibv_alloc_mw(far.pd, IBV_MW_TYPE_2);
	CHECK(window);
	uint32_t key = bind_window(window, (uintptr_t)far.buffer, 64);
	CHECK(ibv_start_poll(cq, &none) == ENOENT);
	struct ibv_sge into = sge(&far, 4096, 100), from = sge(&near, 0, 30);
	receive(&far, 11, &into, 1);
	receive(&far, 12, &into, 1);
	receive(&far, 13, &into, 1);
	struct ibv_send_wr with = remote(IBV_WR_RDMA_WRITE_WITH_IMM, (uintptr_t)far.buffer, far.mr->rkey);
	with.imm_data = htonl(0x0a0b0c0d);
	post(&with, &from, 1);
	struct ibv_send_wr inv = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key };
	post(&inv, &from, 1);
	round_trip();
	CHECK(ibv_start_poll(cq, &none) == 0);
	CHECK(cq->wr_id == 11 && cq->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV_RDMA_WITH_IMM && ibv_wc_read_byte_len(cq) == 30);
	CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM && ibv_wc_read_imm_data(cq) == htonl(0x0a0b0c0d));
	CHECK(ibv_wc_read_qp_num(cq) == far.id->qp->qp_num);
	CHECK(ibv_wc_read_src_qp(cq) == 0 && ibv_wc_read_slid(cq) == 0);
	CHECK(ibv_wc_read_sl(cq) == 0 && ibv_wc_read_dlid_path_bits(cq) == 0);
	CHECK(ibv_next_poll(cq) == 0);
	CHECK(cq->wr_id == 12 && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RECV);
	CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_INV && ibv_wc_read_invalidated_rkey(cq) == key);
	CHECK(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
	CHECK(ibv_start_poll(cq, &none) == ENOENT);
	CHECK(rdma_disconnect(near.id) == 0);
	while (ibv_start_poll(cq, &none) == ENOENT)
		;
	CHECK(cq->wr_id == 13 && cq->status == IBV_WC_WR_FLUSH_ERR);
	ibv_wc_read_vendor_err(cq);
	ibv_end_poll(cq);
	CHECK(ibv_dealloc_mw(window) == 0);
	broken();
	printf("fields\n");
}

static void messages(int count, int flags)
{
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = flags };
		receive(&far, i, NULL, 0);
		post(&wr, NULL, 0);
	}
	round_trip();
}

static int is_told(int timeout)
{
	struct pollfd fd = { .fd = completions->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	if (poll(&fd, 1, timeout) == 0)
		return 0;
	CHECK(ibv_get_cq_event(completions, &cq, &context) == 0 && cq == far.cq);
	ibv_ack_cq_events(cq, 1);
	return 1;
}

static void poll_all(int count)
{
	for (int i = 0; i < count; i++)
		CHECK(next(&far).status == IBV_WC_SUCCESS);
}

/* Whoever asks for solicited completions alone is told of these alone; and of any error. */
static void solicited(void)
{
	CHECK((completions = ibv_create_comp_channel(listener->verbs)));
	connect_both();
	CHECK(ibv_req_notify_cq(far.cq, 1) == 0);
	messages(3, 0);
	CHECK(!is_told(0));
	messages(1, IBV_SEND_SOLICITED);
	CHECK(is_told(-1));
	poll_all(4);
	/* Once. */
	messages(1, IBV_SEND_SOLICITED);
	CHECK(!is_told(0));
	poll_all(1);
	CHECK(ibv_req_notify_cq(far.cq, 1) == 0);
	receive(&far, 9, NULL, 0);
	CHECK(rdma_disconnect(near.id) == 0);
	CHECK(is_told(-1) && next(&far).status == IBV_WC_WR_FLUSH_ERR);
	broken();
	CHECK(ibv_destroy_comp_channel(completions) == 0);
	completions = NULL;
	printf("solicited\n");
}

/* An event for so many completions, or after so long: it comes. That it does not come before is seen where time is a value
 * (crates/rdma/tests/session). */
static void moderated(void)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 3, UINT16_MAX } };
	struct ibv_modify_cq_attr other = { .attr_mask = 2 };
	CHECK((completions = ibv_create_comp_channel(listener->verbs)));
	connect_both();
	CHECK(ibv_modify_cq(far.cq, &other) == EINVAL);
	CHECK(ibv_modify_cq(far.cq, &attr) == 0);
	CHECK(ibv_req_notify_cq(far.cq, 0) == 0);
	messages(3, 0);
	CHECK(is_told(-1));
	poll_all(3);
	/* Fewer are told of, too, but later. */
	attr.moderate.cq_period = 1000;
	CHECK(ibv_modify_cq(far.cq, &attr) == 0);
	CHECK(ibv_req_notify_cq(far.cq, 0) == 0);
	messages(1, 0);
	CHECK(is_told(-1));
	poll_all(1);
	disconnect();
	CHECK(ibv_destroy_comp_channel(completions) == 0);
	completions = NULL;
	printf("moderated\n");
}

/* A window that its owner takes away by a work request. */
static void local_invalidation(void)
{
	connect_both();
	struct ibv_mw *window = ibv_alloc_mw(far.pd, IBV_MW_TYPE_2);
	CHECK(window);
	uint64_t there = (uintptr_t)far.buffer + 512;
	uint32_t key = bind_window(window, there, 64);
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, there, key), *bad;
	CHECK(status(&wr, sge(&near, 0, 64)) == IBV_WC_SUCCESS);
	/* It is complete when it is sent; it is there when a read behind it is. */
	round_trip();
	struct ibv_send_wr inv = { .wr_id = 5, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED };
	inv.invalidate_rkey = key;
	CHECK(ibv_post_send(far.id->qp, &inv, &bad) == 0);
	struct ibv_wc wc = next(&far);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV && wc.wr_id == 5);
	wr = remote(IBV_WR_RDMA_READ, there, key);
	CHECK(status(&wr, sge(&near, 0, 64)) == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_mw(window) == 0);
	broken();
	printf("local invalidation\n");
}

static void step(struct ibv_qp_ex *qp, uint64_t wr_id, unsigned flags)
{
	qp->wr_id = wr_id;
	qp->wr_flags = flags;
}

static void done(struct end *of, uint64_t wr_id, int opcode)
{
	struct ibv_wc wc = next(of);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id && (int)wc.opcode == opcode);
}

/* Each call that builds a request; near's do what far sees. */
static void built(void)
{
	connect_both();
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(near.id->qp), *owner = ibv_qp_to_qp_ex(far.id->qp);
	CHECK(qp && owner);
	uint64_t there = (uintptr_t)far.buffer, *counter = (void *)far.buffer;
	uint32_t rkey = far.mr->rkey, lkey = near.mr->lkey;
	for (int i = 0; i < 3; i++) {
		struct ibv_sge into = sge(&far, 8192 + 256 * i, 256);
		receive(&far, 20 + i, &into, 1);
	}
	/* The peer's window, bound and taken away by its owner, and bound once more. */
	struct ibv_mw *window = ibv_alloc_mw(far.pd, IBV_MW_TYPE_2);
	CHECK(window);
	struct ibv_mw_bind_info info = { far.mr, there + 2048, 64, IBV_ACCESS_REMOTE_WRITE };
	uint32_t first = ibv_inc_rkey(window->rkey), key = ibv_inc_rkey(first);
	ibv_wr_start(owner);
	step(owner, 1, IBV_SEND_SIGNALED);
	ibv_wr_bind_mw(owner, window, first, &info);
	step(owner, 2, IBV_SEND_SIGNALED);
	ibv_wr_local_inv(owner, first);
	step(owner, 3, IBV_SEND_SIGNALED);
	ibv_wr_bind_mw(owner, window, key, &info);
	CHECK(ibv_wr_complete(owner) == 0);
	done(&far, 1, IBV_WC_BIND_MW);
	done(&far, 2, IBV_WC_LOCAL_INV);
	done(&far, 3, IBV_WC_BIND_MW);
	memset(near.buffer, 0x21, 4096);
	*counter = 7;
	struct ibv_sge pieces[] = { sge(&near, 0, 10), sge(&near, 100, 20), sge(&near, 200, 30) };
	unsigned char words[] = "inline";
	struct ibv_data_buf parts[] = { { words, 2 }, { words + 2, 1 }, { words + 3, 4 } };
	ibv_wr_start(qp);
	step(qp, 30, IBV_SEND_SIGNALED);
	ibv_wr_atomic_fetch_add(qp, rkey, there, 5);
	ibv_wr_set_sge(qp, lkey, (uintptr_t)near.buffer + 8000, 8);
	step(qp, 31, IBV_SEND_SIGNALED);
	ibv_wr_atomic_cmp_swp(qp, rkey, there, 12, 99);
	ibv_wr_set_sge(qp, lkey, (uintptr_t)near.buffer + 8008, 8);
	step(qp, 32, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, key, there + 2048);
	ibv_wr_set_sge_list(qp, 3, pieces);
	step(qp, 33, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write_imm(qp, rkey, there + 3000, htonl(77));
	ibv_wr_set_inline_data(qp, words, sizeof words);
	step(qp, 34, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, 3, parts);
	/* What was inline is the program's again. */
	memset(words, 0, sizeof words);
	step(qp, 35, IBV_SEND_SIGNALED);
	ibv_wr_send_inv(qp, key);
	ibv_wr_set_sge(qp, lkey, (uintptr_t)near.buffer, 256);
	step(qp, 36, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	ibv_wr_rdma_read(qp, rkey, there + 2048);
	ibv_wr_set_sge(qp, lkey, (uintptr_t)near.buffer + 9000, 64);
	CHECK(ibv_wr_complete(qp) == 0);
	done(&near, 30, IBV_WC_FETCH_ADD);
	done(&near, 31, IBV_WC_COMP_SWAP);
	done(&near, 32, IBV_WC_RDMA_WRITE);
	done(&near, 33, IBV_WC_RDMA_WRITE);
	done(&near, 34, IBV_WC_SEND);
	done(&near, 35, IBV_WC_SEND);
	done(&near, 36, IBV_WC_RDMA_READ);
	CHECK(*(uint64_t *)(near.buffer + 8000) == 7 && *(uint64_t *)(near.buffer + 8008) == 12 && *counter == 99);
	for (int i = 0; i < 64; i++)
		CHECK(far.buffer[2048 + i] == (i < 60 ? 0x21 : 0) && near.buffer[9000 + i] == far.buffer[2048 + i]);
	CHECK(memcmp(far.buffer + 3000, "inline", 7) == 0 && far.buffer[3007] == 0);
	struct ibv_wc wc = next(&far);
	CHECK(wc.status == 0 && wc.wr_id == 20 && wc.imm_data == htonl(77) && wc.byte_len == 7);
	wc = next(&far);
	CHECK(wc.status == 0 && wc.wr_id == 21 && wc.byte_len == 7 && !wc.wc_flags);
	CHECK(memcmp(far.buffer + 8192 + 256, "inline", 7) == 0);
	wc = next(&far);
	CHECK(wc.status == 0 && wc.wr_id == 22 && wc.byte_len == 256 && wc.wc_flags & IBV_WC_WITH_INV);
	CHECK(wc.invalidated_rkey == key);
	/* Sends have no immediate data in iWARP; nothing is posted of what is built beside one. */
	ibv_wr_start(qp);
	step(qp, 40, IBV_SEND_SIGNALED);
	ibv_wr_rdma_write(qp, rkey, there);
	ibv_wr_set_sge(qp, lkey, (uintptr_t)near.buffer, 8);
	ibv_wr_send_imm(qp, 1);
	CHECK(ibv_wr_complete(qp) == EOPNOTSUPP);
	round_trip();
	CHECK(*counter == 99);
	/* The key is not there any more. */
	ibv_wr_start(qp);
	step(qp, 41, IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(qp, key, there + 2048);
	ibv_wr_set_sge(qp, lkey, (uintptr_t)near.buffer, 8);
	CHECK(ibv_wr_complete(qp) == 0 && next(&near).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dealloc_mw(window) == 0);
	broken();
	printf("built\n");
}

/* A send behind a fence has what the read before it has brought. */
static void fences(void)
{
	connect_both();
	for (int round = 1; round < 200; round++) {
		struct ibv_sge piece = sge(&near, 0, 64 << 10), into = sge(&far, 128 << 10, 64 << 10);
		struct ibv_send_wr reads = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey), *bad;
		struct ibv_send_wr sends = { .opcode = IBV_WR_SEND };
		memset(far.buffer, round, 64 << 10);
		receive(&far, round, &into, 1);
		reads.sg_list = sends.sg_list = &piece;
		reads.num_sge = sends.num_sge = 1;
		reads.next = &sends;
		sends.send_flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
		CHECK(ibv_post_send(near.id->qp, &reads, &bad) == 0);
		CHECK(next(&far).status == IBV_WC_SUCCESS && next(&near).status == IBV_WC_SUCCESS);
		CHECK(memcmp(far.buffer, far.buffer + (128 << 10), 64 << 10) == 0);
	}
	disconnect();
	printf("fences\n");
}

/* Every send completes, though none says that it should. */
static void all_signalled(void)
{
	signals_all = 1;
	connect_both();
	signals_all = 0;
	for (int i = 0; i < 3 * DEPTH; i++) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
		struct ibv_sge element = sge(&near, 0, 8);
		wr.wr_id = i;
		post(&wr, &element, 1);
		done(&near, i, IBV_WC_RDMA_WRITE);
	}
	disconnect();
	printf("all signalled\n");
}

static void devices(void)
{
	int count = -1;
	struct ibv_context **all = rdma_get_devices(&count);
	CHECK(all && count == 1 && all[0] && !all[1]);
	CHECK(!strcmp(ibv_get_device_name(all[0]->device), "wharf0") && all[0] == listener->verbs);
	struct ibv_pd *pd = ibv_alloc_pd(all[0]);
	CHECK(pd && ibv_dealloc_pd(pd) == 0);
	rdma_free_devices(all);
	CHECK((all = rdma_get_devices(NULL)));
	rdma_free_devices(all);
	printf("devices\n");
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	/* What does not come is an error, too. */
	alarm(110);
	begin(argv[1]);
	fields();
	solicited();
	moderated();
	local_invalidation();
	built();
	fences();
	all_signalled();
	devices();
	printf("all\n");
	return 0;
}

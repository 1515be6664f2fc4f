/* A program of verbs for the end-to-end tests: what perftest cannot show, and each error with its status or errno.
 *
 *   verbs ADDRESS         does all, over connections of this process with itself, and says what it has done
 *   verbs ADDRESS COUNT   connects so often, ends that in different ways, and kills itself while it is connected
 *
 * On each connection "near" acts, and "far" has the memory that is written and read: private memory, or, with MEMORY=file
 * in the environment, that of a memfd for near and of a file in /dev/shm for far. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include "check.h"

enum { LEN = 1 << 20, DEPTH = 16, SGES = 4, INLINE = 236, CQE = 64 };
enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND };

struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	unsigned char *buffer;
	/* Of its memory, or -1. */
	int file;
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct sockaddr_in address;
static struct end near, far;
/* What the ends of the next connection are made with. */
static int cqe = CQE, uses_srq;

static void expect(enum rdma_cm_event_type type, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type) {
		printf("%s, not %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	if (id)
		*id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
}

/* Another page of the file is before the memory. */
enum { BEFORE = 4096 };

static void take_memory(struct end *end)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS, offset = 0;
	char name[32];
	end->file = -1;
	if (getenv("MEMORY")) {
		snprintf(name, sizeof name, "/dev/shm/verbs-%d", getpid());
		if (end == &far) {
			CHECK((end->file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0);
		} else {
			CHECK((end->file = memfd_create("verbs", MFD_CLOEXEC)) >= 0);
		}
		offset = BEFORE;
		CHECK(ftruncate(end->file, BEFORE + LEN) == 0);
		flags = MAP_SHARED;
	}
	end->buffer = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, end->file, offset);
	CHECK(end->buffer != MAP_FAILED);
	/* It is found by its path, and the memfd by its descriptor. */
	if (end->file >= 0 && end == &far) {
		CHECK(close(end->file) == 0);
		end->file = -1;
	}
}

/* What has the path of the memory is not needed once that is registered. */
static void forget_path(struct end *end)
{
	char name[32];
	snprintf(name, sizeof name, "/dev/shm/verbs-%d", getpid());
	if (getenv("MEMORY") && end == &far)
		CHECK(unlink(name) == 0);
}

static void prepare(struct end *end, struct rdma_cm_id *id, int has_srq)
{
	memset(end, 0, sizeof *end);
	end->id = id;
	CHECK((end->pd = ibv_alloc_pd(id->verbs)));
	CHECK((end->cq = ibv_create_cq(id->verbs, cqe, NULL, NULL, 0)));
	take_memory(end);
	CHECK((end->mr = ibv_reg_mr(end->pd, end->buffer, LEN, ALL | IBV_ACCESS_RELAXED_ORDERING)));
	forget_path(end);
	if (has_srq) {
		struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
		CHECK((end->srq = ibv_create_srq(end->pd, &attr)));
	}
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->cq, .recv_cq = end->cq, .srq = end->srq, .qp_type = IBV_QPT_RC, .pd = end->pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = SGES,
			 .max_recv_sge = SGES, .max_inline_data = INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND,
	};
	CHECK(rdma_create_qp_ex(id, &attr) == 0);
	CHECK(attr.cap.max_inline_data >= INLINE);
}

static void resolve(struct rdma_cm_id **id)
{
	CHECK(rdma_create_id(channel, id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(*id, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	CHECK(rdma_resolve_route(*id, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
}

static void connect_both(void)
{
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4 };
	struct rdma_cm_id *id;
	resolve(&id);
	prepare(&near, id, 0);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE }, *bad = NULL;
	CHECK(ibv_post_send(id->qp, &wr, &bad) == EINVAL && bad == &wr);
	CHECK(rdma_connect(id, &param) == 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, &id);
	prepare(&far, id, uses_srq);
	CHECK(rdma_accept(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
}

/* Nothing of an end is left that cannot be ended. */
static void end(struct end *of)
{
	rdma_destroy_qp(of->id);
	if (of->srq)
		CHECK(ibv_destroy_srq(of->srq) == 0);
	CHECK(ibv_destroy_cq(of->cq) == 0);
	CHECK(ibv_dereg_mr(of->mr) == 0);
	CHECK(ibv_dealloc_pd(of->pd) == 0);
	CHECK(munmap(of->buffer, LEN) == 0);
	CHECK(of->file < 0 || close(of->file) == 0);
	CHECK(rdma_destroy_id(of->id) == 0);
}

static void disconnect(void)
{
	CHECK(rdma_disconnect(near.id) == 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	end(&near);
	end(&far);
}

/* An error has ended the connection, and both were told. */
static void broken(void)
{
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	end(&near);
	end(&far);
}

static struct ibv_wc next(struct end *of)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(of->cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc;
}

static struct ibv_sge sge(struct end *of, uint32_t at, uint32_t len)
{
	return (struct ibv_sge){ (uintptr_t)of->buffer + at, len, of->mr->lkey };
}

static void receive(struct end *of, uint64_t wr_id, struct ibv_sge *sges, int count)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sges, .num_sge = count }, *bad;
	CHECK((of->srq ? ibv_post_srq_recv(of->srq, &wr, &bad) : ibv_post_recv(of->id->qp, &wr, &bad)) == 0);
}

static void post(struct ibv_send_wr *wr, struct ibv_sge *sges, int count)
{
	struct ibv_send_wr *bad;
	wr->sg_list = sges;
	wr->num_sge = count;
	wr->send_flags |= IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(near.id->qp, wr, &bad) == 0);
}

/* Of near, with one element; how it completes. */
static int status(struct ibv_send_wr *wr, struct ibv_sge element)
{
	post(wr, &element, 1);
	return next(&near).status;
}

static struct ibv_send_wr remote(int opcode, uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = opcode };
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

/* What the context is told, of which far's queue pair, or what else, is the object. */
static void told(enum ibv_event_type type, void *element)
{
	struct ibv_async_event event;
	do {
		CHECK(ibv_get_async_event(far.id->verbs, &event) == 0);
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
	if (event.event_type != type) {
		printf("%s, not %s\n", ibv_event_type_str(event.event_type), ibv_event_type_str(type));
		exit(1);
	}
	CHECK(event.element.qp == element);
}

static void payloads(void)
{
	connect_both();
	srandom(7);
	for (int round = 0; round < 200; round++) {
		uint32_t lens[SGES], total = 0, at = 0;
		struct ibv_sge from[SGES], to[2];
		for (int i = 0; i < SGES; i++) {
			lens[i] = random() % (round % 2 ? 40000 : 50);
			from[i] = sge(&near, at + i * 7, lens[i]);
			for (uint32_t byte = 0; byte < lens[i]; byte++)
				near.buffer[at + i * 7 + byte] = total + byte + round;
			at += lens[i];
			total += lens[i];
		}
		uint32_t first = total ? random() % total : 0;
		to[0] = sge(&far, 3, first);
		to[1] = sge(&far, 400000, total - first);
		memset(far.buffer, 0, LEN);
		receive(&far, round, to, 2);
		struct ibv_send_wr wr = { .wr_id = round, .opcode = IBV_WR_SEND };
		post(&wr, from, SGES);
		struct ibv_wc sent = next(&near), got = next(&far);
		CHECK(sent.status == 0 && sent.opcode == IBV_WC_SEND && sent.wr_id == (uint64_t)round);
		CHECK(got.status == 0 && got.opcode == IBV_WC_RECV && got.wr_id == (uint64_t)round);
		CHECK(got.byte_len == total && got.qp_num == far.id->qp->qp_num);
		for (uint32_t byte = 0; byte < total; byte++) {
			uint32_t place = byte < first ? 3 + byte : 400000 + byte - first;
			CHECK(far.buffer[place] == (unsigned char)(byte + round));
		}
		CHECK(far.buffer[3 + first] == 0 && far.buffer[400000 + total - first] == 0);
	}
	disconnect();
	printf("payloads\n");
}

static void inline_and_immediate(void)
{
	connect_both();
	unsigned char own[INLINE];
	uint64_t there = (uintptr_t)far.buffer;
	memset(own, 0x5a, sizeof own);
	/* Inline data may lie anywhere, and are the program's again at once. */
	struct ibv_sge element = { (uintptr_t)own, INLINE, 0xdead };
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, there, far.mr->rkey), *bad = NULL;
	wr.send_flags = IBV_SEND_INLINE;
	post(&wr, &element, 1);
	memset(own, 0, sizeof own);
	CHECK(next(&near).status == 0);
	struct ibv_send_wr read = remote(IBV_WR_RDMA_READ, there, far.mr->rkey);
	CHECK(status(&read, sge(&near, 0, INLINE + 1)) == 0);
	for (int i = 0; i < INLINE; i++)
		CHECK(near.buffer[i] == 0x5a);
	CHECK(near.buffer[INLINE] == 0);
	unsigned char more[4096];
	element = (struct ibv_sge){ (uintptr_t)more, sizeof more, 0 };
	wr.sg_list = &element;
	CHECK(ibv_post_send(near.id->qp, &wr, &bad) == ENOMEM && bad == &wr);
	/* Immediate data need a receive, which has no bytes of it. */
	receive(&far, 9, NULL, 0);
	memset(near.buffer, 0x33, 1000);
	struct ibv_send_wr with = remote(IBV_WR_RDMA_WRITE_WITH_IMM, there + 5000, far.mr->rkey);
	with.imm_data = htonl(0x01020304);
	CHECK(status(&with, sge(&near, 0, 1000)) == 0);
	struct ibv_wc got = next(&far);
	CHECK(got.status == 0 && got.opcode == IBV_WC_RECV_RDMA_WITH_IMM && got.wr_id == 9);
	CHECK(got.wc_flags & IBV_WC_WITH_IMM && got.imm_data == htonl(0x01020304) && got.byte_len == 1000);
	CHECK(far.buffer[4999] == 0 && far.buffer[5000] == 0x33 && far.buffer[5999] == 0x33);
	CHECK(far.buffer[6000] == 0);
	/* Sends have none. */
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND_WITH_IMM };
	CHECK(ibv_post_send(near.id->qp, &send, &bad) == EOPNOTSUPP && bad == &send);
	disconnect();
	printf("inline and immediate data\n");
}

static void atomics(void)
{
	connect_both();
	uint64_t there = (uintptr_t)far.buffer, *counter = (void *)far.buffer, *before = (void *)near.buffer;
	*counter = 40;
	struct ibv_send_wr wr = remote(IBV_WR_ATOMIC_FETCH_AND_ADD, there, far.mr->rkey);
	wr.wr.atomic.compare_add = 2;
	CHECK(status(&wr, sge(&near, 0, 8)) == 0 && *before == 40 && *counter == 42);
	wr = remote(IBV_WR_ATOMIC_CMP_AND_SWP, there, far.mr->rkey);
	wr.wr.atomic.compare_add = 41;
	wr.wr.atomic.swap = 1;
	CHECK(status(&wr, sge(&near, 0, 8)) == 0 && *before == 42 && *counter == 42);
	wr.wr.atomic.compare_add = 42;
	CHECK(status(&wr, sge(&near, 0, 8)) == 0 && *before == 42 && *counter == 1);
	wr.wr.atomic.remote_addr += 4;
	CHECK(status(&wr, sge(&near, 0, 8)) == IBV_WC_REM_INV_REQ_ERR);
	told(IBV_EVENT_QP_FATAL, far.id->qp);
	broken();
	printf("atomics\n");
}

static void built_in_calls(void)
{
	connect_both();
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(near.id->qp);
	CHECK(qp);
	memset(near.buffer, 0x77, 64);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, far.mr->rkey, (uintptr_t)far.buffer);
	ibv_wr_set_sge(qp, near.mr->lkey, (uintptr_t)near.buffer, 64);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(qp, far.mr->rkey, (uintptr_t)far.buffer);
	ibv_wr_set_sge(qp, near.mr->lkey, (uintptr_t)near.buffer + 64, 64);
	CHECK(ibv_wr_complete(qp) == 0);
	struct ibv_wc wc = next(&near);
	CHECK(wc.status == 0 && wc.wr_id == 2 && memcmp(near.buffer, near.buffer + 64, 64) == 0);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	CHECK(ibv_poll_cq(near.cq, 1, &wc) == 0);
	disconnect();
	printf("ibv_wr\n");
}

static void windows(void)
{
	connect_both();
	struct ibv_mw *first = ibv_alloc_mw(far.pd, IBV_MW_TYPE_1), *second = ibv_alloc_mw(far.pd, IBV_MW_TYPE_2);
	CHECK(first && second);
	uint64_t there = (uintptr_t)far.buffer;
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { far.mr, there + 1000, 100, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ },
	};
	CHECK(ibv_bind_mw(far.id->qp, first, &bind) == 0);
	struct ibv_wc wc = next(&far);
	CHECK(wc.status == 0 && wc.opcode == IBV_WC_BIND_MW);
	CHECK(ibv_dereg_mr(far.mr) == EBUSY);
	memset(near.buffer, 0x11, 200);
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, there + 1000, first->rkey);
	CHECK(status(&wr, sge(&near, 0, 100)) == 0);
	/* One of type 2 is bound by a work request, and the peer's send may take it away. */
	uint32_t key = ibv_inc_rkey(second->rkey);
	struct ibv_send_wr bind_2 = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	bind_2.bind_mw.mw = second;
	bind_2.bind_mw.rkey = key;
	bind_2.bind_mw.bind_info = bind.bind_info;
	bind_2.bind_mw.bind_info.addr = there + 2000;
	CHECK(ibv_post_send(far.id->qp, &bind_2, &bad) == 0);
	CHECK(next(&far).status == 0);
	wr = remote(IBV_WR_RDMA_WRITE, there + 2000, key);
	CHECK(status(&wr, sge(&near, 0, 100)) == 0);
	receive(&far, 5, NULL, 0);
	struct ibv_send_wr with = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key };
	post(&with, NULL, 0);
	CHECK(next(&near).status == 0);
	wc = next(&far);
	CHECK(wc.status == 0 && wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
	CHECK(far.buffer[1099] == 0x11 && far.buffer[1100] == 0 && far.buffer[2000] == 0x11);
	/* And is not there any more. */
	wr = remote(IBV_WR_RDMA_READ, there + 2000, key);
	CHECK(status(&wr, sge(&near, 0, 10)) == IBV_WC_REM_ACCESS_ERR);
	told(IBV_EVENT_QP_ACCESS_ERR, far.id->qp);
	CHECK(ibv_dealloc_mw(first) == 0 && ibv_dealloc_mw(second) == 0);
	broken();
	printf("windows\n");
}

/* A read that is not granted fails at once; a write may be complete already, but changes nothing. */
static void refused(const char *what, uint64_t offset, uint32_t rkey)
{
	uint64_t there = (uintptr_t)far.buffer + offset;
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_READ, there, rkey), *bad;
	CHECK(status(&wr, sge(&near, 0, 16)) == IBV_WC_REM_ACCESS_ERR);
	told(IBV_EVENT_QP_ACCESS_ERR, far.id->qp);
	/* What is posted now is flushed, with its number. */
	struct ibv_sge element = sge(&near, 0, 16);
	struct ibv_recv_wr late = { .wr_id = 78, .sg_list = &element, .num_sge = 1 }, *bad_recv;
	wr = remote(IBV_WR_RDMA_WRITE, there, rkey);
	wr.wr_id = 77;
	CHECK(ibv_post_send(near.id->qp, &wr, &bad) == 0);
	CHECK(ibv_post_recv(near.id->qp, &late, &bad_recv) == 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next(&near);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && (wc.wr_id == 77 || wc.wr_id == 78));
	}
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	CHECK(ibv_query_qp(near.id->qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
	broken();
	connect_both();
	memset(near.buffer, 0xff, 16);
	wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer + offset, rkey);
	int ended = status(&wr, sge(&near, 0, 16));
	CHECK(ended == 0 || ended == IBV_WC_REM_ACCESS_ERR);
	told(IBV_EVENT_QP_ACCESS_ERR, far.id->qp);
	for (int i = 0; i < LEN; i++)
		CHECK(far.buffer[i] == 0);
	broken();
	printf("%s\n", what);
}

static void remote_errors(void)
{
	connect_both();
	refused("not registered", 0, 0x12345600);
	connect_both();
	refused("wrong key", 0, far.mr->rkey ^ 1);
	connect_both();
	refused("before the begin", -1, far.mr->rkey);
	connect_both();
	refused("over the end", LEN - 15, far.mr->rkey);
	connect_both();
	refused("far over the end", 1ull << 63, far.mr->rkey);
	connect_both();
	/* Of this process, but of another domain: near's own. */
	refused("wrong domain", near.buffer - far.buffer, near.mr->rkey);
	connect_both();
	struct ibv_mr *gone = ibv_reg_mr(far.pd, far.buffer, 4096, ALL);
	CHECK(gone);
	uint32_t key = gone->rkey;
	CHECK(ibv_dereg_mr(gone) == 0);
	refused("deregistered", 0, key);
}

static void rights(void)
{
	struct { int access, opcode; } cases[] = {
		{ ALL & ~IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ },
		{ ALL & ~IBV_ACCESS_REMOTE_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD },
		{ IBV_ACCESS_REMOTE_READ, IBV_WR_ATOMIC_CMP_AND_SWP },
	};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		connect_both();
		struct ibv_mr *mr = ibv_reg_mr(far.pd, far.buffer, 4096, cases[i].access);
		CHECK(mr);
		struct ibv_send_wr wr = remote(cases[i].opcode, (uintptr_t)far.buffer, mr->rkey);
		CHECK(status(&wr, sge(&near, 0, 8)) == IBV_WC_REM_ACCESS_ERR);
		told(IBV_EVENT_QP_ACCESS_ERR, far.id->qp);
		CHECK(ibv_dereg_mr(mr) == 0);
		broken();
	}
	printf("rights\n");
}

static void local_errors(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	for (int round = 0; round < 4; round++) {
		connect_both();
		struct ibv_sge element = sge(&near, 0, 16);
		if (round == 0)
			element.lkey ^= 1;
		if (round == 1)
			element.addr += LEN - 15;
		if (round == 2)
			element.lkey = far.mr->lkey;
		if (round == 3) {
			/* It was there when it was registered. A file is there without a mapping. */
			CHECK(munmap(near.buffer, 4096) == 0);
			CHECK(near.file < 0 || ftruncate(near.file, BEFORE) == 0);
		}
		receive(&near, 3, NULL, 0);
		CHECK(status(&wr, element) == IBV_WC_LOC_PROT_ERR);
		struct ibv_wc wc = next(&near);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 3);
		told(IBV_EVENT_QP_FATAL, near.id->qp);
		broken();
	}
	/* Those of a receive are found when its message comes. */
	connect_both();
	struct ibv_sge into = sge(&far, 0, 16);
	into.lkey ^= 1;
	receive(&far, 1, &into, 1);
	CHECK(status(&wr, sge(&near, 0, 16)) == 0);
	CHECK(next(&far).status == IBV_WC_LOC_PROT_ERR);
	broken();
	connect_both();
	into = sge(&far, 0, 15);
	receive(&far, 1, &into, 1);
	status(&wr, sge(&near, 0, 16));
	CHECK(next(&far).status == IBV_WC_LOC_LEN_ERR && far.buffer[0] == 0);
	broken();
	printf("local errors\n");
}

static void full_queues(void)
{
	connect_both();
	struct ibv_send_wr all[DEPTH + 2], *bad;
	struct ibv_sge element = sge(&near, 0, 8), many[SGES + 1];
	/* The device sees none of a list before all of it is there. */
	for (int i = 0; i < DEPTH + 2; i++) {
		all[i] = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
		all[i].sg_list = &element;
		all[i].num_sge = 1;
		all[i].send_flags = IBV_SEND_SIGNALED;
		all[i].next = i < DEPTH + 1 ? &all[i + 1] : NULL;
	}
	CHECK(ibv_post_send(near.id->qp, all, &bad) == ENOMEM && bad == &all[DEPTH]);
	for (int i = 0; i < DEPTH; i++)
		CHECK(next(&near).status == 0);
	struct ibv_recv_wr recv = { .num_sge = 0 }, *bad_recv = NULL;
	for (int i = 0; i < DEPTH; i++)
		CHECK(ibv_post_recv(far.id->qp, &recv, &bad_recv) == 0);
	CHECK(ibv_post_recv(far.id->qp, &recv, &bad_recv) == ENOMEM && bad_recv == &recv);
	memset(many, 0, sizeof many);
	all[0].sg_list = recv.sg_list = many;
	all[0].num_sge = recv.num_sge = SGES + 1;
	CHECK(ibv_post_send(near.id->qp, all, &bad) == EINVAL && bad == all);
	CHECK(ibv_post_recv(near.id->qp, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	disconnect();
	/* A send has its place until its completion is read: whoever posts as long as there is room overruns nothing. */
	cqe = DEPTH;
	connect_both();
	cqe = CQE;
	int posted = 0;
	for (int i = 0; i < 20000; i++) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
		wr.send_flags = IBV_SEND_SIGNALED;
		posted += ibv_post_send(near.id->qp, &wr, &bad) == 0;
		if (i % 200 == 0)
			usleep(1000);
	}
	CHECK(posted == DEPTH);
	for (int i = 0; i < DEPTH; i++)
		CHECK(next(&near).status == 0);
	struct ibv_send_wr again = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
	CHECK(status(&again, sge(&near, 0, 8)) == 0);
	disconnect();
	/* What a completion queue has no room for is lost, and its queue pair is in error. */
	cqe = 4;
	connect_both();
	cqe = CQE;
	for (int i = 0; i < 5; i++) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
		post(&wr, &element, 0);
	}
	told(IBV_EVENT_CQ_ERR, near.cq);
	told(IBV_EVENT_QP_FATAL, near.id->qp);
	struct ibv_wc wc;
	for (int i = 0; i < 4; i++)
		CHECK(next(&near).status == 0);
	CHECK(ibv_poll_cq(near.cq, 1, &wc) == 0);
	broken();
	printf("full queues\n");
}

static void shared_queue(void)
{
	uses_srq = 1;
	connect_both();
	uses_srq = 0;
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	struct ibv_recv_wr recv = { .num_sge = 0 }, *bad;
	CHECK(ibv_post_recv(far.id->qp, &recv, &bad) == EINVAL);
	for (int i = 0; i < 3; i++) {
		struct ibv_sge into = sge(&far, 64 * i, 64);
		receive(&far, i, &into, 1);
	}
	CHECK(ibv_modify_srq(far.srq, &attr, IBV_SRQ_LIMIT) == 0);
	CHECK(ibv_query_srq(far.srq, &attr) == 0 && attr.srq_limit == 2 && attr.max_wr >= DEPTH);
	for (int i = 0; i < 2; i++) {
		CHECK(status(&wr, sge(&near, 0, 64)) == 0);
		struct ibv_wc wc = next(&far);
		CHECK(wc.status == 0 && wc.wr_id == (uint64_t)i);
	}
	told(IBV_EVENT_SRQ_LIMIT_REACHED, far.srq);
	CHECK(ibv_query_srq(far.srq, &attr) == 0 && attr.srq_limit == 0);
	CHECK(ibv_destroy_srq(far.srq) == EBUSY);
	disconnect();
	printf("shared receive queue\n");
}

static void objects(void)
{
	connect_both();
	struct ibv_context *context = near.id->verbs;
	CHECK(ibv_dealloc_pd(near.pd) == EBUSY);
	CHECK(ibv_destroy_cq(near.cq) == EBUSY);
	CHECK(!ibv_reg_mr(near.pd, near.buffer, LEN, IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_mr(near.pd, near.buffer, LEN, IBV_ACCESS_ZERO_BASED) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_mr(near.pd, near.buffer, LEN, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(near.pd, near.buffer, 0, ALL) && errno == EINVAL);
	CHECK(!ibv_reg_mr(near.pd, (void *)4096, 4096, ALL) && errno == EFAULT);
	CHECK(!ibv_reg_mr(near.pd, near.buffer, ~0ul - 4096, ALL));
	void *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(!ibv_reg_mr(near.pd, constant, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	struct ibv_mr *read_only = ibv_reg_mr(near.pd, constant, 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(read_only && ibv_dereg_mr(read_only) == 0 && munmap(constant, 4096) == 0);
	/* A mapping that may only be read gives no right to write, whatever its file does. */
	int file = memfd_create("constant", MFD_CLOEXEC);
	CHECK(file >= 0 && ftruncate(file, 4096) == 0);
	constant = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
	CHECK(!ibv_reg_mr(near.pd, constant, 4096, ALL) && errno == EFAULT);
	CHECK(!ibv_reg_mr(near.pd, constant, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	read_only = ibv_reg_mr(near.pd, constant, 4096, IBV_ACCESS_REMOTE_READ);
	CHECK(read_only && ibv_dereg_mr(read_only) == 0);
	CHECK(munmap(constant, 4096) == 0 && close(file) == 0);
	CHECK(ibv_resize_cq(near.cq, 2 * CQE) == EOPNOTSUPP);
	struct ibv_device_attr attr;
	CHECK(ibv_query_device(context, &attr) == 0 && attr.atomic_cap == IBV_ATOMIC_HCA);
	CHECK(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(context, attr.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	struct ibv_cq_init_attr_ex huge = { .cqe = UINT32_MAX };
	CHECK(!ibv_create_cq_ex(context, &huge) && errno == EINVAL);
	struct ibv_qp_init_attr qp = { .send_cq = near.cq, .recv_cq = near.cq, .qp_type = IBV_QPT_RC };
	qp.cap.max_inline_data = 1 << 20;
	CHECK(!ibv_create_qp(near.pd, &qp) && errno != 0);
	qp.cap.max_inline_data = 0;
	qp.cap.max_send_wr = attr.max_qp_wr + 1;
	CHECK(!ibv_create_qp(near.pd, &qp) && errno != 0);
	qp.cap.max_send_wr = 1;
	qp.qp_type = IBV_QPT_UD;
	CHECK(!ibv_create_qp(near.pd, &qp) && errno == EOPNOTSUPP);
	disconnect();
	printf("objects\n");
}

static void events(void)
{
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq, *near_cq;
	void *context;
	connect_both();
	CHECK((completions = ibv_create_comp_channel(near.id->verbs)));
	CHECK((cq = ibv_create_cq(near.id->verbs, 8, &near, completions, 0)));
	CHECK(ibv_destroy_comp_channel(completions) == EBUSY);
	/* A queue pair that completes there. */
	near_cq = near.cq;
	rdma_destroy_qp(near.id);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	end(&far);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4 };
	struct rdma_cm_id *id;
	CHECK(rdma_destroy_id(near.id) == 0);
	resolve(&near.id);
	near.cq = cq;
	CHECK(rdma_create_qp(near.id, near.pd, &attr) == 0);
	CHECK(rdma_connect(near.id, &param) == 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, &id);
	prepare(&far, id, 0);
	CHECK(rdma_accept(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	for (int round = 0; round < 50; round++) {
		CHECK(ibv_req_notify_cq(cq, 0) == 0);
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey);
		struct ibv_sge element = sge(&near, 0, 4096);
		post(&wr, &element, 1);
		struct ibv_cq *whose;
		CHECK(ibv_get_cq_event(completions, &whose, &context) == 0);
		CHECK(whose == cq && context == &near);
		ibv_ack_cq_events(cq, 1);
		CHECK(next(&near).status == 0);
	}
	disconnect();
	CHECK(ibv_destroy_cq(near_cq) == 0);
	CHECK(ibv_destroy_comp_channel(completions) == 0);
	printf("events\n");
}

/* Nobody is told of what is destroyed: poll(2) does not say that there is an event which is not there. */
static void unread_events(void)
{
	connect_both();
	struct ibv_context *context = near.id->verbs;
	struct ibv_comp_channel *completions = ibv_create_comp_channel(context);
	CHECK(completions);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, completions, 0);
	CHECK(cq);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(near.pd, &attr);
	CHECK(qp);
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;
	CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
	struct pollfd fd = { .fd = completions->fd, .events = POLLIN };
	CHECK(poll(&fd, 1, -1) == 1);
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(poll(&fd, 1, 0) == 0);
	CHECK(ibv_destroy_comp_channel(completions) == 0);
	struct ibv_send_wr write = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey ^ 1);
	CHECK(status(&write, sge(&near, 0, 8)) == IBV_WC_REM_ACCESS_ERR);
	fd.fd = context->async_fd;
	CHECK(poll(&fd, 1, -1) == 1);
	broken();
	CHECK(poll(&fd, 1, 0) == 0);
	printf("unread events\n");
}

static void rejections(void)
{
	struct rdma_conn_param param = { .private_data = "hello", .private_data_len = 6 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	resolve(&id);
	prepare(&near, id, 0);
	CHECK(rdma_connect(id, &param) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!strcmp(event->param.conn.private_data, "hello") && event->listen_id == listener);
	struct rdma_cm_id *asked = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_reject(asked, "no", 3) == 0 && rdma_destroy_id(asked) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == -ECONNREFUSED && !strcmp(event->param.conn.private_data, "no"));
	CHECK(rdma_ack_cm_event(event) == 0);
	end(&near);
	/* Nobody listens there. */
	uint16_t port = address.sin_port;
	address.sin_port = htons(1);
	resolve(&id);
	prepare(&near, id, 0);
	address.sin_port = port;
	CHECK(rdma_connect(id, &param) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == -ECONNREFUSED && rdma_ack_cm_event(event) == 0);
	end(&near);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == -1 && errno == EOPNOTSUPP);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == -1 && errno == EADDRINUSE);
	CHECK(rdma_destroy_id(id) == 0);
	printf("rejections\n");
}

static pid_t waiter;

static void *wait_for_event(void *channel)
{
	struct rdma_cm_event *event;
	__atomic_store_n(&waiter, gettid(), __ATOMIC_SEQ_CST);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	return NULL;
}

/* Whether a thread of this process sleeps. */
static int is_asleep(pid_t thread)
{
	char path[64], stat[512], *state;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	FILE *file = fopen(path, "r");
	CHECK(file && fgets(stat, sizeof stat, file));
	fclose(file);
	CHECK((state = strrchr(stat, ')')));
	return state[2] == 'S';
}

/* A thread that waits for events while their channel is destroyed waits on, as in read(2) of the kernel's. */
static void waiting(void)
{
	struct rdma_event_channel *other;
	pthread_t thread;
	CHECK((other = rdma_create_event_channel()));
	CHECK(pthread_create(&thread, NULL, wait_for_event, other) == 0);
	pid_t thread_id;
	while (!(thread_id = __atomic_load_n(&waiter, __ATOMIC_SEQ_CST)) || !is_asleep(thread_id))
		usleep(1000);
	rdma_destroy_event_channel(other);
	usleep(200000);
	/* It has not ended. */
	while (!is_asleep(thread_id))
		usleep(1000);
	printf("waiting\n");
}

/* As a process that is killed again and again: what it leaves is the device's to clear. */
static void churn(int count)
{
	for (int i = 0; i < count; i++) {
		connect_both();
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey);
		CHECK(status(&wr, sge(&near, 0, 4096)) == 0);
		if (i % 3 == 0) {
			disconnect();
		} else if (i % 3 == 1) {
			rdma_destroy_qp(near.id);
			broken();
		} else {
			wr.wr.rdma.rkey ^= 1;
			CHECK(status(&wr, sge(&near, 0, 4096)) == IBV_WC_REM_ACCESS_ERR);
			told(IBV_EVENT_QP_ACCESS_ERR, far.id->qp);
			broken();
		}
	}
	connect_both();
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey);
	struct ibv_sge element = sge(&near, 0, LEN);
	printf("killed\n");
	for (int i = 0; i < DEPTH; i++)
		post(&wr, &element, 1);
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* What does not come is an error, too. */
	alarm(110);
	CHECK(argc > 1);
	address.sin_family = AF_INET;
	CHECK(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
	CHECK(rdma_listen(listener, 8) == 0);
	address.sin_port = rdma_get_src_port(listener);
	if (argc > 2)
		churn(atoi(argv[2]));
	payloads();
	inline_and_immediate();
	atomics();
	built_in_calls();
	windows();
	remote_errors();
	rights();
	local_errors();
	full_queues();
	shared_queue();
	objects();
	events();
	unread_events();
	rejections();
	waiting();
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(channel);
	printf("all\n");
	return 0;
}

/* Connections of this process with itself, for programs of verbs of the end-to-end tests: "near" acts, and "far" has the
 * memory that is written and read. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <glob.h>
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
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct sockaddr_in address;
static struct end near, far;
/* What the ends of the next connection are made with: the queues and the channel are far's. */
static int uses_srq, signals_all;
static struct ibv_comp_channel *completions;
static struct ibv_cq *far_cq;

static inline void expect(enum rdma_cm_event_type type, struct rdma_cm_id **id)
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

static inline void prepare(struct end *end, struct rdma_cm_id *id)
{
	int is_far = end == &far;
	memset(end, 0, sizeof *end);
	end->id = id;
	CHECK((end->pd = ibv_alloc_pd(id->verbs)));
	if (is_far)
		end->cq = far_cq;
	if (!end->cq)
		CHECK((end->cq = ibv_create_cq(id->verbs, CQE, NULL, is_far ? completions : NULL, 0)));
	end->buffer = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(end->buffer != MAP_FAILED);
	CHECK((end->mr = ibv_reg_mr(end->pd, end->buffer, LEN, ALL)));
	if (is_far && uses_srq) {
		struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
		CHECK((end->srq = ibv_create_srq(end->pd, &attr)));
	}
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = end->cq, .recv_cq = end->cq, .srq = end->srq, .qp_type = IBV_QPT_RC, .pd = end->pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = SGES,
			 .max_recv_sge = SGES, .max_inline_data = INLINE },
		.sq_sig_all = signals_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				  IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW,
	};
	CHECK(rdma_create_qp_ex(id, &attr) == 0);
}

static inline void resolve(struct rdma_cm_id **id)
{
	CHECK(rdma_create_id(channel, id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(*id, NULL, (struct sockaddr *)&address, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	CHECK(rdma_resolve_route(*id, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
}

static inline void connect_both(void)
{
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4 };
	struct rdma_cm_id *id;
	resolve(&id);
	prepare(&near, id);
	CHECK(rdma_connect(id, &param) == 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, &id);
	prepare(&far, id);
	CHECK(rdma_accept(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
}

/* Nothing of an end is left that cannot be ended. */
static inline void end(struct end *of)
{
	rdma_destroy_qp(of->id);
	if (of->srq)
		CHECK(ibv_destroy_srq(of->srq) == 0);
	CHECK(ibv_destroy_cq(of->cq) == 0);
	CHECK(ibv_dereg_mr(of->mr) == 0);
	CHECK(ibv_dealloc_pd(of->pd) == 0);
	CHECK(munmap(of->buffer, LEN) == 0);
	CHECK(rdma_destroy_id(of->id) == 0);
}

/* An error has ended the connection, and both were told. */
static inline void broken(void)
{
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	end(&near);
	end(&far);
}

static inline void disconnect(void)
{
	CHECK(rdma_disconnect(near.id) == 0);
	broken();
}

static inline struct ibv_wc next(struct end *of)
{
	struct ibv_wc wc;
	int count;
	while ((count = ibv_poll_cq(of->cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc;
}

static inline struct ibv_sge sge(struct end *of, uint32_t at, uint32_t len)
{
	return (struct ibv_sge){ (uintptr_t)of->buffer + at, len, of->mr->lkey };
}

static inline void receive(struct end *of, uint64_t wr_id, struct ibv_sge *sges, int count)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sges, .num_sge = count }, *bad;
	CHECK((of->srq ? ibv_post_srq_recv(of->srq, &wr, &bad) : ibv_post_recv(of->id->qp, &wr, &bad)) == 0);
}

static inline void post(struct ibv_send_wr *wr, struct ibv_sge *sges, int count)
{
	struct ibv_send_wr *bad;
	wr->sg_list = sges;
	wr->num_sge = count;
	CHECK(ibv_post_send(near.id->qp, wr, &bad) == 0);
}

/* Of near, with one element; how it completes. */
static inline int status(struct ibv_send_wr *wr, struct ibv_sge element)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	post(wr, &element, 1);
	return next(&near).status;
}

static inline struct ibv_send_wr remote(int opcode, uint64_t addr, uint32_t rkey)
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

/* A connection of this process with itself writes what it should. */
static inline void write_to_itself(void)
{
	connect_both();
	memset(near.buffer, 0x5c, 1000);
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer + 7, far.mr->rkey);
	CHECK(status(&wr, sge(&near, 0, 1000)) == IBV_WC_SUCCESS);
	wr = remote(IBV_WR_RDMA_READ, (uintptr_t)far.buffer, far.mr->rkey);
	CHECK(status(&wr, sge(&near, 2000, 1008)) == IBV_WC_SUCCESS);
	CHECK(memcmp(near.buffer, near.buffer + 2007, 1000) == 0);
	CHECK(near.buffer[2006] == 0 && near.buffer[3007] == 0);
}

static inline int is_stopped(const char *task)
{
	char stat[512], *state;
	FILE *file = fopen(task, "r");
	/* A thread may end. */
	if (!file)
		return 1;
	int is_read = fgets(stat, sizeof stat, file) != NULL;
	fclose(file);
	return !is_read || ((state = strrchr(stat, ')')) && state[2] == 'T');
}

/* Stops a process, and waits until each thread stands still. */
static inline void stop(pid_t pid)
{
	char path[32];
	glob_t tasks;
	int are_stopped;
	CHECK(kill(pid, SIGSTOP) == 0);
	snprintf(path, sizeof path, "/proc/%d/task/*/stat", pid);
	do {
		CHECK(glob(path, 0, NULL, &tasks) == 0);
		are_stopped = 1;
		for (size_t i = 0; i < tasks.gl_pathc; i++)
			are_stopped &= is_stopped(tasks.gl_pathv[i]);
		globfree(&tasks);
	} while (!are_stopped);
}

static inline void begin(const char *own)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	address.sin_family = AF_INET;
	CHECK(inet_pton(AF_INET, own, &address.sin_addr) == 1);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
	CHECK(rdma_listen(listener, 8) == 0);
	address.sin_port = rdma_get_src_port(listener);
}

/* A program of verbs for the end-to-end tests: what their man pages say of calls beyond what they are for.
 *
 *   abi ADDRESS CASE   does one case, over connections of this process with itself, and says "done" */
#include "cases.h"
#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>
#include <sys/wait.h>
#include <rdma/rsocket.h>

static unsigned char buffer[4096];
static struct ibv_mr *mr;

/* Registers memory that the peer, which is this process, may reach. */
static void register_buffer(struct rdma_cm_id *id)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
	CHECK((mr = ibv_reg_mr(id->pd, buffer, sizeof buffer, access)));
}

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

/* Answers to questions, and to what there is not. */
static void answers(void)
{
	struct ibv_qp_attr attr = { .port_num = 2, .qp_state = IBV_QPS_RESET };
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad;
	struct sockaddr_storage other = { .ss_family = AF_UNIX };
	struct rdma_cm_id *id;
	connect_both();
	CHECK(ibv_query_qp_data_in_order(near->qp, IBV_WR_RDMA_WRITE, 0) == 0);
	CHECK(ibv_modify_qp(near->qp, &attr, IBV_QP_PORT) == EINVAL);
	CHECK(rdma_establish(near) == -1 && errno == EINVAL);
	CHECK(!ibv_alloc_mw(near->pd, 3) && errno == EINVAL);
	CHECK(works(near));
	CHECK(ibv_modify_qp(near->qp, &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_post_recv(near->qp, &receive, &bad) == EINVAL && bad == &receive);
	end(near);
	end(far);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&other) == -1 && errno == EINVAL);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&other, 1000) == -1 && errno == EINVAL);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_TM_ERR), "TM error"));
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE), "TM software rendezvous"));
	CHECK(!strcmp(ibv_port_state_str(99), "unknown") && !strcmp(ibv_node_type_str(0), "unknown"));
}

static void *posts(void *none)
{
	for (;;) {
		CHECK(works(near));
		pthread_testcancel();
	}
	return none;
}

static void *registers(void *none)
{
	for (;;) {
		struct ibv_mr *new = ibv_reg_mr(near->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
		CHECK(new && ibv_dereg_mr(new) == 0);
		pthread_testcancel();
	}
	return none;
}

static void *creates(void *none)
{
	for (;;) {
		struct rdma_cm_id *id;
		CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0 && rdma_destroy_id(id) == 0);
		pthread_testcancel();
	}
	return none;
}

static void *waits(void *none)
{
	struct rdma_cm_event *event;
	rdma_get_cm_event(channel, &event);
	return none;
}

/* Connects to whoever says nothing, and waits for what comes of it. */
static void *connects(void *silent)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, silent, 2000) == 0 && rdma_resolve_route(id, 2000) == 0);
	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	rdma_connect(id, NULL);
	return NULL;
}

static void cancel(void *(*what)(void *), void *with, useconds_t after)
{
	pthread_t thread;
	void *ended;
	CHECK(pthread_create(&thread, NULL, what, with) == 0);
	usleep(after);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &ended) == 0);
	CHECK(ended == PTHREAD_CANCELED);
}

/* A thread may be cancelled while it calls verbs: where it waits for events, and not in the midst of other calls. */
static void cancelled_threads(void)
{
	struct sockaddr_in silent = address;
	socklen_t len = sizeof silent;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	silent.sin_port = 0;
	CHECK(bind(fd, (struct sockaddr *)&silent, len) == 0 && listen(fd, 4) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&silent, &len) == 0);
	connect_both();
	for (int i = 0; i < 10; i++) {
		cancel(posts, NULL, 3000 + 137 * i);
		cancel(registers, NULL, 3000 + 137 * i);
		cancel(creates, NULL, 3000 + 137 * i);
	}
	cancel(waits, NULL, 50000);
	cancel(connects, &silent, 300000);
	CHECK(works(near));
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

/* What a child says of its parent's objects, and what it has of its own. */
static void in_child(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_send_wr send = { .opcode = IBV_WR_RDMA_WRITE }, *bad_send;
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad_receive;
	struct ibv_qp_init_attr init;
	struct ibv_wc wc;
	struct ibv_context *parents = near->verbs;
	CHECK(ibv_poll_cq(cq, 1, &wc) == -ENODEV);
	CHECK(ibv_req_notify_cq(cq, 0) == ENODEV);
	CHECK(ibv_modify_qp(near->qp, &attr, IBV_QP_STATE) == ENODEV);
	CHECK(ibv_query_qp(near->qp, &attr, IBV_QP_STATE, &init) == ENODEV);
	CHECK(ibv_post_send(near->qp, &send, &bad_send) == ENODEV && bad_send == &send);
	CHECK(ibv_post_recv(near->qp, &receive, &bad_receive) == ENODEV && bad_receive == &receive);
	CHECK(!ibv_alloc_pd(near->verbs) && errno == ENODEV);
	CHECK(rdma_disconnect(near) == -1 && errno == ENODEV);
	/* It begins anew. */
	cq = NULL;
	CHECK((channel = rdma_create_event_channel()));
	near = resolve();
	CHECK(near->verbs != parents);
	make_qp(near);
	struct ibv_pd *pd = ibv_alloc_pd(near->verbs);
	CHECK(pd && ibv_dealloc_pd(pd) == 0);
	end(near);
}

static void forked(void)
{
	int status;
	connect_both();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		in_child();
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(works(near));
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

enum { READS = 4000, READERS = 2 };

static struct ibv_cq_ex *extended;
static int seen;

/* What an entry says is of one request: the length is told by its number. */
static void *reads(void *none)
{
	struct ibv_poll_cq_attr attr = { 0 };
	while (__atomic_load_n(&seen, __ATOMIC_RELAXED) < READS) {
		if (ibv_start_poll(extended, &attr))
			continue;
		do {
			uint64_t id = extended->wr_id;
			sched_yield();
			CHECK(extended->status == IBV_WC_SUCCESS && ibv_wc_read_byte_len(extended) == 8 + id % 8);
			CHECK(extended->wr_id == id);
			__atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
		} while (ibv_next_poll(extended) == 0);
		ibv_end_poll(extended);
	}
	return none;
}

/* Several threads read one queue, each entry by one of them. */
static void read_by_threads(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED }, *bad;
	pthread_t threads[READERS];
	CHECK((extended = ibv_create_cq_ex(listener->verbs, &attr)));
	cq = ibv_cq_ex_to_cq(extended);
	ask();
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	accept_it();
	register_buffer(near);
	struct ibv_sge sge = { (uintptr_t)buffer, 0, mr->lkey };
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.rdma.remote_addr = (uintptr_t)buffer + 64;
	wr.wr.rdma.rkey = mr->rkey;
	for (int i = 0; i < READERS; i++)
		CHECK(pthread_create(&threads[i], NULL, reads, NULL) == 0);
	while (wr.wr_id < READS) {
		sge.length = 8 + wr.wr_id % 8;
		if (ibv_post_send(near->qp, &wr, &bad) == 0)
			wr.wr_id++;
		else
			sched_yield();
	}
	for (int i = 0; i < READERS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

/* What no device could do is refused where it is posted, and ends no connection. */
static void refused_posts(void)
{
	enum { READ = IBV_WR_RDMA_READ, ADD = IBV_WR_ATOMIC_FETCH_AND_ADD, HALF = 1 << 30 };
	static const struct { int opcode, count, flags; uint32_t len; } posts[] = {
		{ READ, 2, 0, 8 }, { READ, 1, IBV_SEND_INLINE, 8 }, { ADD, 1, 0, 4 }, { ADD, 1, 0, 16 }, { ADD, 0, 0, 8 },
		{ ADD, 2, 0, 8 }, { ADD, 1, IBV_SEND_INLINE, 8 }, { IBV_WR_SEND, 2, 0, HALF + 1 },
	};
	near = resolve();
	CHECK((cq = ibv_create_cq(near->verbs, 8 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { DEPTH, DEPTH, 2, 2, 64 },
	};
	CHECK(rdma_create_qp(near, NULL, &attr) == 0);
	CHECK(rdma_connect(near, &param) == 0);
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	accept_it();
	register_buffer(near);
	for (size_t at = 0; at < sizeof posts / sizeof *posts; at++) {
		struct ibv_sge sges[2] = {
			{ (uintptr_t)buffer, posts[at].len, mr->lkey }, { (uintptr_t)buffer, posts[at].len, mr->lkey },
		};
		struct ibv_send_wr wr = {
			.opcode = posts[at].opcode, .send_flags = posts[at].flags, .sg_list = sges,
			.num_sge = posts[at].count,
		}, *bad = NULL;
		wr.wr.atomic.remote_addr = (uintptr_t)buffer;
		wr.wr.atomic.rkey = mr->rkey;
		CHECK(ibv_post_send(near->qp, &wr, &bad) == EINVAL && bad == &wr);
	}
	/* Work without data takes no notice of a flag for data. */
	struct ibv_mw *mw = ibv_alloc_mw(near->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE }, *bad;
	CHECK(mw);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info) { mr, (uintptr_t)buffer, 64, IBV_ACCESS_REMOTE_WRITE };
	CHECK(ibv_post_send(near->qp, &bind, &bad) == 0 && next_status() == IBV_WC_SUCCESS);
	CHECK(works(near));
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

/* A function by its name, as what was built by other headers calls it. */
static void *named(const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);
	CHECK(function);
	return function;
}

/* What the port is, also to programs whose attributes end before port_cap_flags2: nothing is written behind those. */
static void ports(void)
{
	enum { OLD = 48, GUARD = 0xa5 };
	_Static_assert(offsetof(struct ibv_port_attr, port_cap_flags2) == OLD, "48 bytes");
	struct ibv_context *context = listener->verbs;
	int (*forms[])(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *) = {
		named("ibv_query_port"), context->ops._compat_query_port,
	};
	struct ibv_port_attr port;
	memset(&port, GUARD, sizeof port);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE && port.gid_tbl_len == 1 && port.pkey_tbl_len == 1);
	CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && port.max_msg_sz == 1U << 31);
	CHECK(port.lid == 0 && port.flags == 0 && port.port_cap_flags2 == 0);
	for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
		unsigned char old[2 * sizeof port];
		memset(old, GUARD, sizeof old);
		CHECK(forms[form](context, 2, (void *)old) == EINVAL && old[0] == GUARD);
		CHECK(forms[form](context, 1, (void *)old) == 0);
		CHECK(memcmp(old, &port, OLD) == 0);
		for (size_t at = OLD; at < sizeof old; at++)
			CHECK(old[at] == GUARD);
	}
}

/* There is one GID, whichever call is asked for it. */
static void gids(void)
{
	struct ibv_context *context = listener->verbs;
	int (*query_type)(struct ibv_context *, uint8_t, unsigned int, int *) = named("ibv_query_gid_type");
	int (*query_entry)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t) =
		named("_ibv_query_gid_ex");
	ssize_t (*query_table)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t) =
		named("_ibv_query_gid_table");
	struct ibv_gid_entry entry, table[2];
	union ibv_gid gid;
	int type = -1;
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	CHECK(gid.global.subnet_prefix && gid.global.subnet_prefix == ibv_get_device_guid(context->device));
	CHECK(gid.global.interface_id == 0);
	CHECK(ibv_query_gid(context, 1, 1, &gid) == -1 && ibv_query_gid(context, 2, 0, &gid) == -1);
	/* This one has numbers of its own (IBV_GID_TYPE_SYSFS_IB_ROCE_V1). */
	CHECK(query_type(context, 1, 0, &type) == 0 && type == 0);
	CHECK(query_type(context, 1, 1, &type) == -1 && query_type(context, 2, 0, &type) == -1);
	memset(&entry, 0xff, sizeof entry);
	CHECK(query_entry(context, 1, 0, &entry, 0, sizeof entry) == 0);
	CHECK(memcmp(&entry.gid, &gid, sizeof gid) == 0 && entry.gid_index == 0 && entry.port_num == 1);
	CHECK(entry.gid_type == IBV_GID_TYPE_IB && entry.ndev_ifindex == 0);
	CHECK(query_entry(context, 1, 1, &entry, 0, sizeof entry) == EINVAL);
	CHECK(query_entry(context, 1, 0, &entry, 1, sizeof entry) == EINVAL);
	CHECK(query_entry(context, 1, 0, &entry, 0, sizeof entry - 1) == EINVAL);
	memset(table, 0xff, sizeof table);
	CHECK(query_table(context, table, 2, 0, sizeof *table) == 1);
	CHECK(memcmp(&table[0], &entry, offsetof(struct ibv_gid_entry, ndev_ifindex)) == 0);
	CHECK(table[0].ndev_ifindex == 0 && table[1].port_num == UINT32_MAX);
	CHECK(query_table(context, table, 0, 0, sizeof *table) == -EINVAL);
	CHECK(query_table(context, table, 2, 1, sizeof *table) == -EINVAL);
}

/* A region is at the address that the program says, to its peers and to itself. */
static void other_addresses(void)
{
	enum { IOVA = 0x1000 };
	enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int) =
		named("ibv_reg_mr_iova2");
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	connect_both();
	register_buffer(near);
	struct ibv_mr *other = reg_mr(near->pd, buffer + 1024, 64, IOVA, ACCESS);
	CHECK(other && other->addr == buffer + 1024 && other->length == 64 && other->pd == near->pd);
	CHECK(other->context == near->verbs && other->lkey == other->rkey && other->rkey != mr->rkey);
	memcpy(buffer, "elsewhere", 9);
	struct ibv_sge sge = { (uintptr_t)buffer, 9, mr->lkey };
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.rdma.remote_addr = IOVA + 8;
	wr.wr.rdma.rkey = other->rkey;
	CHECK(ibv_post_send(near->qp, &wr, &bad) == 0 && next_status() == IBV_WC_SUCCESS);
	/* What a read finds has been written by then. */
	sge = (struct ibv_sge){ IOVA + 32, 9, other->lkey };
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(ibv_post_send(near->qp, &wr, &bad) == 0 && next_status() == IBV_WC_SUCCESS);
	CHECK(memcmp(buffer + 1024 + 8, "elsewhere", 9) == 0);
	CHECK(memcmp(buffer + 1024 + 32, "elsewhere", 9) == 0);
	/* Where it lies is outside of the region. */
	wr.wr.rdma.remote_addr = (uintptr_t)buffer + 1024;
	CHECK(ibv_post_send(near->qp, &wr, &bad) == 0 && next_status() == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_dereg_mr(other) == 0 && ibv_dereg_mr(mr) == 0);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(near);
	end(far);
}

/* There are no objects of other processes and no rsockets. Calls that say nothing leave what they are given as it is, and
 * descriptors are waited for as the kernel has it. */
static void not_there(void)
{
	struct timeval time = { .tv_usec = 1000 };
	int ends[2];
	fd_set reads;
	connect_both();
	register_buffer(near);
	CHECK(!ibv_import_pd(near->verbs, 0) && errno == EOPNOTSUPP);
	CHECK(!ibv_import_mr(near->pd, 0) && errno == EOPNOTSUPP);
	CHECK(!ibv_import_dm(near->verbs, 0) && errno == EOPNOTSUPP);
	ibv_unimport_dm(NULL);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(near->pd);
	CHECK(works(near));
	CHECK(rsocket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EOPNOTSUPP);
	CHECK(pipe(ends) == 0);
	FD_ZERO(&reads);
	FD_SET(ends[0], &reads);
	CHECK(rselect(ends[0] + 1, &reads, NULL, NULL, &time) == 0 && !FD_ISSET(ends[0], &reads));
	CHECK(time.tv_sec == 0 && time.tv_usec == 1000);
	CHECK(write(ends[1], "", 1) == 1);
	FD_SET(ends[0], &reads);
	CHECK(rselect(ends[0] + 1, &reads, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], &reads));
	CHECK(rselect(-1, NULL, NULL, NULL, &time) == -1 && errno == EINVAL);
	CHECK(ibv_dereg_mr(mr) == 0);
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

int main(int argc, char **argv)
{
	static const struct test cases[] = {
		{ "whole_batches", whole_batches }, { "answers", answers },
		{ "cancelled_threads", cancelled_threads }, { "forked", forked },
		{ "read_by_threads", read_by_threads },
		{ "refused_posts", refused_posts },
		{ "ports", ports }, { "gids", gids },
		{ "other_addresses", other_addresses }, { "not_there", not_there },
	};
	return run(argc, argv, cases, sizeof cases / sizeof *cases);
}

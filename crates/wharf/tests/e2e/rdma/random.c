/* A program of verbs for the end-to-end tests: verbs with random arguments, in any order.
 *
 *   random ADDRESS SEED ROUNDS CALLS
 *
 * A round has a connection of this process with itself, and so many calls, with numbers, sizes, states and flags that may
 * be of something that is there, or of nothing. Pointers are those that a program may pass: to objects that are there, to
 * memory that is there, and NULL where man pages allow it. Whatever the calls return, the next round's connection does what
 * it should. */
#include "itself.h"

enum { LIST = 20 };

static struct ibv_mw *window;
static struct rdma_event_channel *scratch;
static long good, bad;
/* Private data. */
static unsigned char words[256];

static unsigned below(unsigned count)
{
	return count ? (unsigned)random() % count : 0;
}

static uint64_t any64(void)
{
	switch (below(6)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return (uintptr_t)far.buffer + below(LEN);
	case 3:
		return (uintptr_t)near.buffer + below(LEN);
	case 4:
		return 1ull << 63;
	}
	return (uint64_t)random() << 32 ^ (uint64_t)random();
}

static uint32_t any32(void)
{
	switch (below(7)) {
	case 0:
		return 0;
	case 1:
		return UINT32_MAX;
	case 2:
		return far.mr->rkey;
	case 3:
		return near.mr->lkey;
	case 4:
		return below(64);
	case 5:
		return 1u << 31;
	}
	return random();
}

static void count(int result)
{
	if (result == 0)
		good++;
	else
		bad++;
}

static void read_errors(void)
{
	struct pollfd fd = { .fd = near.id->verbs->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	while (poll(&fd, 1, 0) == 1) {
		CHECK(ibv_get_async_event(near.id->verbs, &event) == 0);
		CHECK(event.event_type != IBV_EVENT_DEVICE_FATAL);
		ibv_ack_async_event(&event);
	}
}

/* Events of either channel; requests for connections are ended. */
static void read_events(struct rdma_event_channel *of)
{
	struct pollfd fd = { .fd = of->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	while (poll(&fd, 1, 0) == 1) {
		CHECK(rdma_get_cm_event(of, &event) == 0);
		struct rdma_cm_id *id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
		CHECK(rdma_ack_cm_event(event) == 0);
		if (!id)
			continue;
		if (below(2))
			count(rdma_reject(id, words, below(sizeof words)));
		CHECK(rdma_destroy_id(id) == 0);
	}
}

static void fill(struct ibv_sge *list)
{
	for (int i = 0; i < LIST; i++)
		list[i] = (struct ibv_sge){ any64(), below(2) ? any32() : below(2000), any32() };
}

static void post_sends(struct end *of)
{
	struct ibv_sge list[LIST], own[LIST];
	struct ibv_send_wr wr[3], *where;
	int posts = 1 + below(3);
	memset(wr, 0, sizeof wr);
	fill(list);
	/* Inline data are read by the call: they are there. */
	for (int i = 0; i < LIST; i++)
		own[i] = (struct ibv_sge){ (uintptr_t)near.buffer + below(LEN / 2), below(400), any32() };
	for (int i = 0; i < posts; i++) {
		wr[i].wr_id = i;
		wr[i].next = i + 1 < posts ? &wr[i + 1] : NULL;
		wr[i].sg_list = list;
		wr[i].num_sge = below(3) ? (int)below(3) : (int)below(LIST + 2) - 1;
		wr[i].opcode = below(16);
		wr[i].send_flags = (below(4) ? below(16) : any32()) & ~IBV_SEND_INLINE;
		wr[i].imm_data = any32();
		wr[i].wr.atomic.remote_addr = any64();
		wr[i].wr.atomic.rkey = any32();
		wr[i].wr.atomic.compare_add = any64();
		wr[i].wr.atomic.swap = any64();
		if (wr[i].num_sge > LIST)
			wr[i].num_sge = LIST;
		if (wr[i].opcode == IBV_WR_BIND_MW) {
			wr[i].bind_mw.mw = window;
			wr[i].bind_mw.rkey = below(2) ? ibv_inc_rkey(window->rkey) : any32();
			wr[i].bind_mw.bind_info = (struct ibv_mw_bind_info){
				below(2) ? near.mr : far.mr, any64(), any64(), any32()
			};
		}
		if (below(4) == 0) {
			wr[i].send_flags |= IBV_SEND_INLINE;
			wr[i].sg_list = own;
		}
	}
	count(ibv_post_send(of->id->qp, wr, &where));
}

static void post_receives(struct end *of)
{
	struct ibv_sge list[LIST];
	struct ibv_recv_wr wr = { .sg_list = list, .num_sge = (int)below(8) - 1 }, *where;
	fill(list);
	if (of->srq && below(2))
		count(ibv_post_srq_recv(of->srq, &wr, &where));
	else
		count(ibv_post_recv(of->id->qp, &wr, &where));
}

static void build(struct end *of)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(of->id->qp);
	struct ibv_sge list[LIST];
	CHECK(qp);
	fill(list);
	ibv_wr_start(qp);
	for (unsigned i = below(4); i > 0; i--) {
		qp->wr_id = i;
		qp->wr_flags = any32() & ~IBV_SEND_INLINE;
		switch (below(8)) {
		case 0:
			ibv_wr_rdma_write(qp, any32(), any64());
			break;
		case 1:
			ibv_wr_rdma_read(qp, any32(), any64());
			break;
		case 2:
			ibv_wr_send(qp);
			break;
		case 3:
			ibv_wr_send_inv(qp, any32());
			break;
		case 4:
			ibv_wr_local_inv(qp, any32());
			break;
		case 5:
			ibv_wr_atomic_cmp_swp(qp, any32(), any64(), any64(), any64());
			break;
		case 6:
			ibv_wr_rdma_write_imm(qp, any32(), any64(), any32());
			break;
		case 7:
			ibv_wr_send_imm(qp, any32());
		}
		if (below(2))
			ibv_wr_set_sge_list(qp, below(LIST + 1), list);
		else
			ibv_wr_set_inline_data(qp, near.buffer, below(400));
	}
	if (below(8))
		count(ibv_wr_complete(qp));
	else
		ibv_wr_abort(qp);
}

static void poll_some(struct end *of)
{
	struct ibv_wc wc[300];
	ibv_poll_cq(of->cq, below(300), wc);
	ibv_poll_cq(of->cq, (int)below(3) - 1, wc);
	ibv_req_notify_cq(of->cq, any32());
}

static void register_some(struct end *of)
{
	uint32_t at = below(LEN), len = below(8) ? below(LEN - at) : 0;
	struct ibv_mr *mr;
	if (below(2))
		mr = ibv_reg_mr(of->pd, of->buffer + at, below(8) ? len : any64(), any32());
	else
		mr = ibv_reg_mr_iova(of->pd, of->buffer + at, len, any64(), any32());
	count(mr == NULL);
	if (mr)
		count(ibv_dereg_mr(mr));
	struct ibv_mw *mw = ibv_alloc_mw(of->pd, any32());
	if (mw) {
		struct ibv_mw_bind bind = { .send_flags = any32() & ~IBV_SEND_INLINE };
		bind.bind_info = (struct ibv_mw_bind_info){ below(4) ? of->mr : NULL, any64(), any64(), any32() };
		count(ibv_bind_mw(of->id->qp, mw, &bind));
		count(ibv_dealloc_mw(mw));
	}
}

static void make_queues(struct end *of)
{
	struct ibv_qp_init_attr init = {
		.send_cq = below(8) ? of->cq : NULL, .recv_cq = below(4) ? of->cq : NULL,
		.srq = below(4) ? NULL : of->srq, .qp_type = below(2) ? IBV_QPT_RC : below(12),
		.cap = { any32(), any32(), any32(), any32(), any32() }, .sq_sig_all = any32(),
	};
	if (below(2))
		init.cap = (struct ibv_qp_cap){ below(99), below(99), below(20), below(20), below(300) };
	struct ibv_qp *qp = ibv_create_qp(of->pd, &init);
	count(qp == NULL);
	if (qp) {
		struct ibv_qp_attr attr = { .qp_state = any32(), .cur_qp_state = any32() };
		count(ibv_modify_qp(qp, &attr, below(2) ? IBV_QP_STATE : any32()));
		count(ibv_query_qp(qp, &attr, any32(), &init));
		count(ibv_destroy_qp(qp));
	}
	struct ibv_cq *cq = ibv_create_cq(of->id->verbs, below(2) ? any32() : below(5000), NULL, NULL, below(3));
	count(cq == NULL);
	if (cq) {
		struct ibv_modify_cq_attr attr = { any32(), { any32(), any32() } };
		count(ibv_modify_cq(cq, &attr));
		count(ibv_resize_cq(cq, any32()));
		count(ibv_destroy_cq(cq));
	}
	struct ibv_srq_init_attr shared = { .attr = { any32(), any32(), any32() } };
	if (below(2))
		shared.attr = (struct ibv_srq_attr){ below(99), below(20), below(99) };
	struct ibv_srq *srq = ibv_create_srq(of->pd, &shared);
	count(srq == NULL);
	if (srq) {
		struct ibv_srq_attr attr = { any32(), any32(), any32() };
		count(ibv_modify_srq(srq, &attr, below(4)));
		count(ibv_query_srq(srq, &attr));
		count(ibv_destroy_srq(srq));
	}
}

static void ask(struct end *of)
{
	struct ibv_port_attr port;
	struct ibv_device_attr device;
	union ibv_gid gid;
	uint16_t pkey;
	count(ibv_query_port(of->id->verbs, any32(), &port));
	count(ibv_query_device(of->id->verbs, &device));
	count(ibv_query_gid(of->id->verbs, any32(), any32(), &gid));
	count(ibv_query_pkey(of->id->verbs, any32(), any32(), &pkey));
	struct ibv_ah_attr ah = { .port_num = any32() };
	count(ibv_create_ah(of->pd, &ah) == NULL);
	count(ibv_attach_mcast(of->id->qp, &gid, any32()));
	ibv_event_type_str(any32());
	ibv_wc_status_str(any32());
	rdma_event_str(any32());
}

static void any_address(struct sockaddr_storage *to)
{
	static const int families[] = { AF_INET, AF_INET, AF_INET6, AF_UNIX, AF_IB, 0, 999 };
	memset(to, below(4) ? 0 : random(), sizeof *to);
	if (below(2))
		memcpy(to, &address, sizeof address);
	else
		to->ss_family = families[below(7)];
	if (below(4) == 0)
		((struct sockaddr_in *)to)->sin_port = any32();
}

/* An identifier of its own, in any state, and calls to it in any order. */
static void identify(struct end *of)
{
	struct rdma_cm_id *id;
	struct sockaddr_storage at;
	struct rdma_conn_param param = {
		.private_data = below(4) ? words : NULL, .responder_resources = any32(),
		.initiator_depth = any32(), .flow_control = any32(), .retry_count = any32(), .qp_num = any32(),
	};
	param.private_data_len = param.private_data ? any32() : 0;
	int made = rdma_create_id(scratch, &id, below(2) ? of : NULL, below(4) ? RDMA_PS_TCP : any32());
	count(made);
	if (made)
		return;
	for (unsigned i = below(8); i > 0; i--) {
		struct ibv_qp_init_attr init = {
			.send_cq = of->cq, .recv_cq = of->cq, .qp_type = below(3) ? IBV_QPT_RC : any32(),
			.cap = { below(20), below(20), below(5), below(5), below(300) },
		};
		struct ibv_qp_attr attr = { .qp_state = below(8) };
		char option[16] = { any32() };
		int mask;
		any_address(&at);
		switch (below(12)) {
		case 0:
			count(rdma_bind_addr(id, (struct sockaddr *)&at));
			break;
		case 1:
		case 2:
			count(rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, below(3000)));
			break;
		case 3:
		case 4:
			count(rdma_resolve_route(id, any32()));
			break;
		case 5:
			count(rdma_listen(id, any32()));
			break;
		case 6:
			if (!id->qp && id->verbs)
				count(rdma_create_qp(id, below(2) ? of->pd : NULL, &init));
			break;
		case 7:
			count(rdma_connect(id, below(8) ? &param : NULL));
			break;
		case 8:
			count(below(2) ? rdma_accept(id, &param) : rdma_reject(id, words, any32()));
			break;
		case 9:
			count(below(2) ? rdma_disconnect(id) : rdma_establish(id));
			break;
		case 10:
			count(rdma_set_option(id, below(3), below(6), option, below(sizeof option + 1)));
			break;
		case 11:
			count(below(2) ? rdma_notify(id, any32()) : rdma_init_qp_attr(id, &attr, &mask));
			break;
		}
		if (below(4) == 0)
			read_events(scratch);
	}
	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
}

static void find(void)
{
	struct rdma_addrinfo hints = {
		.ai_flags = any32(), .ai_family = below(2) ? AF_INET : any32(),
		.ai_qp_type = below(2) ? IBV_QPT_RC : any32(), .ai_port_space = any32(),
	};
	static const char *const names[] = { "127.0.0.1", "::1", "", "not.an.address.invalid", "300.1.1.1" };
	static const char *const services[] = { "0", "7174", "65535", "99999", "-1" };
	struct rdma_addrinfo *found = NULL;
	/* No names that would be looked for in a network. */
	hints.ai_flags |= RAI_NUMERICHOST;
	int error = rdma_getaddrinfo(below(4) ? names[below(5)] : NULL, below(4) ? services[below(5)] : NULL,
				     below(4) ? &hints : NULL, &found);
	count(error);
	if (error)
		return;
	struct ibv_qp_init_attr init = { .qp_type = below(3) ? IBV_QPT_RC : any32(),
					 .cap = { below(20), below(20), below(5), below(5), below(300) } };
	struct rdma_cm_id *id;
	error = rdma_create_ep(&id, found, NULL, below(2) ? &init : NULL);
	count(error);
	if (error == 0)
		rdma_destroy_ep(id);
	rdma_freeaddrinfo(found);
}

static void change(struct end *of)
{
	struct ibv_qp_attr attr = { .qp_state = below(8) };
	if (below(8) == 0)
		count(ibv_modify_qp(of->id->qp, &attr, IBV_QP_STATE));
	if (below(12) == 0)
		count(rdma_disconnect(of->id));
}

static void call(struct end *of)
{
	static void (*const all[])(struct end *) = {
		post_sends, post_sends, post_sends, post_sends, post_receives, post_receives,
		build, poll_some, register_some, make_queues, ask, identify, change,
	};
	unsigned which = below(sizeof all / sizeof *all + 1);
	if (which == sizeof all / sizeof *all)
		find();
	else
		all[which](of);
	read_errors();
}

/* The ends of a connection that may be over, with whatever they were told. */
static void clear(void)
{
	rdma_destroy_qp(near.id);
	rdma_destroy_qp(far.id);
	CHECK(ibv_dealloc_mw(window) == 0);
	read_errors();
	struct rdma_event_channel *other = rdma_create_event_channel();
	CHECK(other);
	/* Whatever is still to be told goes with them. */
	CHECK(rdma_migrate_id(near.id, other) == 0 && rdma_migrate_id(far.id, other) == 0);
	for (int i = 0; i < 2; i++) {
		struct end *of = i ? &far : &near;
		CHECK(rdma_destroy_id(of->id) == 0);
		if (of->srq)
			CHECK(ibv_destroy_srq(of->srq) == 0);
		CHECK(ibv_destroy_cq(of->cq) == 0);
		CHECK(ibv_dereg_mr(of->mr) == 0);
		CHECK(ibv_dealloc_pd(of->pd) == 0);
		CHECK(munmap(of->buffer, LEN) == 0);
	}
	rdma_destroy_event_channel(other);
	read_events(channel);
}

/* Whatever calls have asked the listener for may come late: to one that is no more, and not between the events of the next
 * connection. */
static void listen_anew(const char *own)
{
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(channel);
	address.sin_port = 0;
	begin(own);
}

int main(int argc, char **argv)
{
	CHECK(argc == 5);
	alarm(110);
	begin(argv[1]);
	CHECK((scratch = rdma_create_event_channel()));
	int rounds = atoi(argv[3]), calls = atoi(argv[4]);
	srandom(atoi(argv[2]));
	for (int round = 0; round < rounds; round++) {
		/* What does not come is an error, too. */
		alarm(110);
		uses_srq = below(2);
		write_to_itself();
		CHECK((window = ibv_alloc_mw(near.pd, below(2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2)));
		for (int i = 0; i < calls; i++)
			call(below(2) ? &near : &far);
		clear();
		listen_anew(argv[1]);
	}
	write_to_itself();
	printf("calls %ld refused %ld\n", good + bad, bad);
	return 0;
}

/* A program of verbs for the end-to-end tests: identifiers and events of the connection manager, as their man pages say.
 *
 *   manager ADDRESS CASE   does one case, over connections of this process with itself, and says "done" */
#include "cases.h"

/* What listens, or is connected, goes on as it is when it is told to listen. */
static void listen_twice(void)
{
	CHECK(rdma_listen(listener, 8) == -1 && errno == EINVAL);
	connect_both();
	CHECK(rdma_listen(near, 8) == -1 && errno == EINVAL);
	CHECK(works(near));
	CHECK(rdma_disconnect(near) == 0);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(near);
	end(far);
}

static int bind_any(struct rdma_cm_id *id, int family, in_port_t port)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = port };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = port };
	return rdma_bind_addr(id, family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four);
}

/* An address of IPv6 that is to be that alone leaves the port of IPv4 to others. What is no option is refused. */
static void options(void)
{
	struct rdma_cm_id *four, *six, *both;
	uint8_t service = 0x20;
	int one = 1;
	CHECK(rdma_create_id(channel, &four, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(channel, &six, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(channel, &both, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, 1) == -1 && errno == EINVAL);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one) == 0);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one) == 0);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &service, sizeof service) == 0);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, sizeof one) == -1 && errno == EINVAL);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, 99, &one, sizeof one) == -1 && errno == ENOSYS);
	CHECK(rdma_set_option(six, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &one, sizeof one) == -1 && errno == ENOSYS);
	CHECK(bind_any(four, AF_INET, 0) == 0);
	CHECK(rdma_listen(four, 8) == 0);
	CHECK(bind_any(both, AF_INET6, rdma_get_src_port(four)) == -1 && errno == EADDRINUSE);
	CHECK(bind_any(six, AF_INET6, rdma_get_src_port(four)) == 0);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &service, sizeof service) == 0);
	CHECK(rdma_listen(six, 8) == 0);
	CHECK(rdma_set_option(six, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one) == -1 && errno == EINVAL);
	/* Once it is bound, too. */
	CHECK(bind_any(both, AF_INET6, 0) == 0);
	in_port_t port = rdma_get_src_port(both);
	CHECK(rdma_set_option(both, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one) == 0);
	CHECK(rdma_get_src_port(both) == port && rdma_listen(both, 8) == 0);
	CHECK(rdma_destroy_id(four) == 0);
	CHECK(rdma_create_id(channel, &four, NULL, RDMA_PS_TCP) == 0);
	CHECK(bind_any(four, AF_INET, port) == 0 && rdma_listen(four, 8) == 0);
	CHECK(rdma_destroy_id(four) == 0);
	CHECK(rdma_destroy_id(six) == 0);
	CHECK(rdma_destroy_id(both) == 0);
}

/* The peer hears nothing of a connection that this side has no queue pair for, and whoever accepts may try again. */
static void without_queue_pair(void)
{
	struct rdma_cm_id *id = resolve();
	CHECK(rdma_connect(id, &param) == -1 && errno == EINVAL);
	make_qp(id);
	CHECK(rdma_connect(id, &param) == 0);
	near = id;
	/* There is one request. */
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_accept(far, &param) == -1 && errno == EINVAL);
	accept_it();
	CHECK(works(near));
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

/* Whoever serves one connection may end the listener before it accepts; those that it was not told of are closed. */
static void listener_ends(void)
{
	ask();
	struct rdma_cm_id *first = near;
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	ask();
	CHECK(is_readable(channel, -1) == 1);
	CHECK(rdma_destroy_id(listener) == 0);
	CHECK(expect(channel, RDMA_CM_EVENT_REJECTED) == near);
	accept_it();
	CHECK(works(first));
	end(near);
	end(first);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

/* A connection ends with its identifier. */
static void connected_ends(void)
{
	connect_both();
	struct ibv_qp *qp = near->qp;
	CHECK(rdma_destroy_id(near) == 0);
	CHECK(expect(channel, RDMA_CM_EVENT_DISCONNECTED) == far);
	CHECK(!works(far));
	end(far);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* Nobody is told of what is destroyed: poll(2) does not say that there is an event which is not there. */
static void unread_events_end(void)
{
	struct rdma_cm_id *id, *other;
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	CHECK(is_readable(channel, -1) == 1);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(is_readable(channel, 0) == 0);
	/* Those of others stay, in their order. */
	CHECK(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) == 0);
	CHECK(rdma_resolve_addr(other, NULL, (struct sockaddr *)&address, 2000) == 0);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	CHECK(rdma_resolve_route(other, 2000) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(is_readable(channel, 0) == 1);
	CHECK(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == other);
	CHECK(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == other);
	CHECK(is_readable(channel, 0) == 0);
	CHECK(rdma_destroy_id(other) == 0);
}

static void *acknowledge(void *event)
{
	usleep(100000);
	CHECK(rdma_ack_cm_event(event) == 0);
	return NULL;
}

/* Events that were not read move along, and those that were are waited for. */
static void migrate(void)
{
	struct rdma_event_channel *other;
	struct rdma_cm_event *event;
	pthread_t thread;
	CHECK((other = rdma_create_event_channel()));
	connect_both();
	CHECK(rdma_disconnect(near) == 0);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	struct rdma_cm_id *first = event->id, *second = first == near ? far : near;
	CHECK(is_readable(channel, -1) == 1);
	CHECK(rdma_migrate_id(second, other) == 0 && second->channel == other);
	CHECK(is_readable(channel, 0) == 0);
	CHECK(expect(other, RDMA_CM_EVENT_DISCONNECTED) == second);
	CHECK(pthread_create(&thread, NULL, acknowledge, event) == 0);
	CHECK(rdma_migrate_id(first, other) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	end(near);
	end(far);
	/* Requests that have come move with whoever listens. */
	ask();
	CHECK(is_readable(channel, -1) == 1);
	CHECK(rdma_migrate_id(listener, other) == 0);
	far = expect(other, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(far->channel == other);
	make_qp(far);
	CHECK(rdma_accept(far, &param) == 0);
	CHECK(expect(other, RDMA_CM_EVENT_ESTABLISHED) == far);
	CHECK(expect(channel, RDMA_CM_EVENT_ESTABLISHED) == near);
	end(near);
	end(far);
}

/* A message that no receive is posted for waits for one up to 5 s, but not when its receiver has disconnected. */
/* Whether the end of a connection is told at once, whose peer has no receive for a message. */
static int is_told_at_once(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	int is_told;
	connect_both();
	CHECK(ibv_post_send(near->qp, &wr, &bad) == 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(rdma_disconnect(far) == 0);
	is_told = is_readable(channel, 4000);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(near);
	end(far);
	return is_told;
}

static void message_waits(void)
{
	/* A busy machine may have been late; the device would wait for 5 s each time. */
	CHECK(is_told_at_once() || is_told_at_once() || is_told_at_once());
}

/* As soon as an identifier is a device's it has a domain, in which memory is registered, and its queue pair made. */
static void has_domain(void)
{
	static char buffer[64];
	struct sockaddr_in free_port = address;
	struct rdma_cm_id *bound, *id = resolve();
	struct ibv_mr *mr;
	CHECK(id->verbs && id->pd);
	CHECK((mr = rdma_reg_msgs(id, buffer, sizeof buffer)));
	CHECK(rdma_dereg_mr(mr) == 0);
	struct ibv_pd *before = id->pd;
	make_qp(id);
	CHECK(id->pd == before && id->qp->pd == before);
	end(id);
	CHECK(rdma_create_id(channel, &bound, NULL, RDMA_PS_TCP) == 0);
	CHECK(!bound->verbs && !bound->pd);
	free_port.sin_port = 0;
	CHECK(rdma_bind_addr(bound, (struct sockaddr *)&free_port) == 0);
	CHECK(bound->verbs && bound->pd);
	CHECK(rdma_destroy_id(bound) == 0);
	ask();
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK((mr = rdma_reg_msgs(far, buffer, sizeof buffer)));
	CHECK(rdma_dereg_mr(mr) == 0);
	accept_it();
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

/* Whoever is rejected has its receives back. */
static void rejected_is_flushed(void)
{
	struct ibv_recv_wr wr = { .wr_id = 7 }, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	near = resolve();
	make_qp(near);
	CHECK(ibv_post_recv(near->qp, &wr, &bad) == 0);
	CHECK(rdma_connect(near, &param) == 0);
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_reject(far, NULL, 0) == 0);
	CHECK(expect(channel, RDMA_CM_EVENT_REJECTED) == near);
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 7);
	CHECK(ibv_query_qp(near->qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
	CHECK(rdma_destroy_id(far) == 0);
	end(near);
}

static void move_to(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;
	CHECK(rdma_init_qp_attr(id, &attr, &mask) == 0);
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

/* Queue pairs that are the program's own go from state to state as the manager says, and are told of by their numbers. */
static void own_queue_pairs(void)
{
	struct rdma_conn_param own = param;
	near = resolve();
	CHECK((cq = ibv_create_cq(near->verbs, 8 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *first = ibv_create_qp(near->pd, &attr), *second = ibv_create_qp(near->pd, &attr);
	struct ibv_wc wc;
	CHECK(first && second);
	move_to(near, first, IBV_QPS_INIT);
	own.qp_num = first->qp_num;
	CHECK(rdma_connect(near, &own) == 0);
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	move_to(far, second, IBV_QPS_INIT);
	move_to(far, second, IBV_QPS_RTR);
	move_to(far, second, IBV_QPS_RTS);
	own.qp_num = second->qp_num;
	CHECK(rdma_accept(far, &own) == 0);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(ibv_post_send(first, &wr, &bad) == 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(first) == 0 && ibv_destroy_qp(second) == 0);
	CHECK(rdma_destroy_id(near) == 0 && rdma_destroy_id(far) == 0);
}

/* The shared queue of an identifier is its queue pair's, and there is one. */
static void shared_queue_of_id(void)
{
	struct ibv_srq_init_attr plain = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex extended = {
		.attr = plain.attr, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE, .srq_type = IBV_SRQT_BASIC,
	};
	near = resolve();
	CHECK(rdma_create_srq(near, NULL, &plain) == 0 && near->srq);
	CHECK(rdma_create_srq(near, NULL, &plain) == -1 && errno == EINVAL);
	make_qp(near);
	CHECK(near->qp->srq == near->srq);
	far = resolve();
	CHECK(rdma_create_srq_ex(far, &extended) == 0 && far->srq->pd == far->pd);
	rdma_destroy_srq(far);
	CHECK(rdma_destroy_id(far) == 0);
	rdma_destroy_qp(near);
	rdma_destroy_srq(near);
	CHECK(rdma_destroy_id(near) == 0);
}

/* What cannot listen, as another does there, stays bound, and may try again. */
static void listen_again(void)
{
	struct rdma_cm_id *first, *second;
	int one = 1;
	CHECK(rdma_create_id(channel, &first, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
	CHECK(bind_any(first, AF_INET, 0) == 0);
	CHECK(bind_any(second, AF_INET, rdma_get_src_port(first)) == -1 && errno == EADDRINUSE);
	CHECK(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one) == 0);
	CHECK(bind_any(second, AF_INET, rdma_get_src_port(first)) == -1 && errno == EADDRINUSE);
	CHECK(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one) == 0);
	CHECK(bind_any(second, AF_INET, rdma_get_src_port(first)) == 0);
	CHECK(rdma_listen(second, 8) == -1 && errno == EADDRINUSE);
	CHECK(rdma_destroy_id(first) == 0);
	CHECK(rdma_listen(second, 8) == 0);
	CHECK(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one) == -1);
	address.sin_port = rdma_get_src_port(second);
	connect_both();
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
	CHECK(rdma_destroy_id(second) == 0);
}

static void expect_rejected(void)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	CHECK(event->event == RDMA_CM_EVENT_REJECTED && event->status == -ECONNREFUSED);
	CHECK(rdma_ack_cm_event(event) == 0);
	end(near);
}

/* A request that is not answered is rejected, whether it was read or not. Before that there is nothing to disconnect. */
static void unanswered(void)
{
	CHECK(rdma_disconnect(listener) == -1 && errno == EINVAL);
	ask();
	far = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(rdma_disconnect(far) == 0);
	CHECK(rdma_destroy_id(far) == 0);
	expect_rejected();
	ask();
	CHECK(is_readable(channel, -1) == 1);
	CHECK(rdma_destroy_id(listener) == 0);
	expect_rejected();
}

/* There is no route to what has no address. */
static void no_route(void)
{
	struct sockaddr_in all = address;
	struct rdma_cm_id *id;
	all.sin_addr.s_addr = INADDR_BROADCAST;
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&all, 1000) == 0);
	expect(channel, RDMA_CM_EVENT_ADDR_ERROR);
	CHECK(rdma_resolve_route(id, 1000) == -1 && errno == EINVAL);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0);
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(rdma_destroy_id(id) == 0);
}

static void expect_completion(enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode);
}

/* Each message may wait for its receive for 5 s, not all of them together. */
static void messages_wait(void)
{
	enum { COUNT = 4 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
	connect_both();
	for (int at = 0; at < COUNT; at++) {
		CHECK(ibv_post_send(near->qp, &wr, &bad) == 0);
		expect_completion(IBV_WC_SEND);
	}
	for (int at = 0; at < COUNT; at++) {
		usleep(1400000);
		CHECK(ibv_post_recv(far->qp, &receive, &bad_receive) == 0);
		expect_completion(IBV_WC_RECV);
	}
	CHECK(works(near));
	end(near);
	end(far);
}

int main(int argc, char **argv)
{
	static const struct test cases[] = {
		{ "listen_twice", listen_twice }, { "without_queue_pair", without_queue_pair },
		{ "listener_ends", listener_ends }, { "connected_ends", connected_ends },
		{ "unread_events_end", unread_events_end }, { "migrate", migrate },
		{ "message_waits", message_waits }, { "messages_wait", messages_wait },
		{ "options", options }, { "has_domain", has_domain },
		{ "rejected_is_flushed", rejected_is_flushed },
		{ "own_queue_pairs", own_queue_pairs },
		{ "shared_queue_of_id", shared_queue_of_id },
		{ "listen_again", listen_again },
		{ "unanswered", unanswered }, { "no_route", no_route },
	};
	return run(argc, argv, cases, sizeof cases / sizeof *cases);
}

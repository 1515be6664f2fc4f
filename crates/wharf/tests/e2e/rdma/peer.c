/* A program of verbs for the end-to-end tests: one-sided traffic that is checked, and what happens to it.
 *
 *   peer serve PORT MORE   accepts one connection and does nothing any more; on SIGHUP it does MORE:
 *                          exec (becomes "watch"), exit, fork, shrink (its memory's file, until the connection ends);
 *                          with reject it accepts none
 *   peer watch ADDRESS     other memory at the same address, which nothing may change
 *   peer call HOST PORT    writes, reads back and adds until the connection ends, or ROUNDS= times
 *   peer misread HOST PORT reads by a key that is not the peer's, and is told that this is refused
 *   peer leave HOST PORT   reads from a peer that does not answer, disconnects, and is told that this is over
 *   peer wait HOST PORT    posts receives, and waits for the end of the device
 *
 * What the tests do has happened when files are there that the environment names: GO=, clients begin; UNTIL=, "call" ends,
 * but not before; OVER=, nobody writes any more to what "watch" has.
 *
 * The memory of "serve" and "watch" is private, or as the environment says, MEMORY=: memfd; append (a memfd whose
 * descriptor appends once it is registered); sealed (against being written but by mappings); closed (a memfd without a
 * descriptor); anonymous; or the path of a file.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include "check.h"

enum { LEN = 1 << 20, PIECE = 64 << 10, ROUNDS = 2000, RECEIVES = 4 };

struct window { uint64_t addr; uint32_t rkey; };

static struct rdma_event_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char *buffer;

static int file = -1;

static int is_memory(const char *kind)
{
	const char *memory = getenv("MEMORY");
	return memory && !strcmp(memory, kind);
}

static unsigned char *map_of(const char *memory, void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	if (memory)
		flags = is_memory("anonymous") ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
	if (!(flags & MAP_ANONYMOUS)) {
		file = memory[0] == '/' ? open(memory, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
					: memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		CHECK(file >= 0 && ftruncate(file, LEN) == 0);
	}
	flags |= at ? MAP_FIXED_NOREPLACE : 0;
	unsigned char *mapped = mmap(at, LEN, PROT_READ | PROT_WRITE, flags, file, 0);
	CHECK(mapped != MAP_FAILED);
	if (is_memory("sealed"))
		CHECK(fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	if (is_memory("closed"))
		CHECK(close(file) == 0);
	return mapped;
}

static unsigned char *map(void *at)
{
	return map_of(NULL, at);
}

/* Whether a file is there that the environment names, if it does. */
static int has_happened(const char *variable)
{
	const char *path = getenv(variable);
	return !path || access(path, F_OK) == 0;
}

static void wait_for(const char *variable)
{
	while (!has_happened(variable))
		usleep(1000);
}

static struct rdma_cm_id *expect(enum rdma_cm_event_type type, struct window *window)
{
	struct rdma_cm_event *event;
	CHECK(rdma_get_cm_event(channel, &event) == 0);
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

static void prepare(struct rdma_cm_id *id, unsigned char *at)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	CHECK(pd);
	buffer = at;
	CHECK((mr = ibv_reg_mr(pd, buffer, LEN, access)));
	CHECK((cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0)));
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(rdma_create_qp(id, pd, &attr) == 0);
}

static struct rdma_cm_id *connect_to(const char *host, const char *port, struct window *window)
{
	struct addrinfo *to;
	struct rdma_cm_id *id;
	CHECK(getaddrinfo(host, port, NULL, &to) == 0);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, to->ai_addr, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	CHECK(rdma_resolve_route(id, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	prepare(id, map(NULL));
	struct rdma_conn_param param = { .responder_resources = 8, .initiator_depth = 8 };
	CHECK(rdma_connect(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, window);
	printf("connected\n");
	return id;
}

/* Does one request; its status. */
static int request(struct rdma_cm_id *id, struct ibv_send_wr *wr, uint32_t at, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)buffer + at, len, mr->lkey };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int count;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(id->qp, wr, &bad))
		return -1;
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1);
	return wc.status;
}

/* Whether "call" goes on behind so many rounds. */
static int goes_on(uint64_t rounds)
{
	const char *most = getenv("ROUNDS");
	if (getenv("UNTIL"))
		return !has_happened("UNTIL");
	return rounds < (most ? strtoul(most, NULL, 10) : ROUNDS);
}

static int call(const char *host, const char *port)
{
	struct window window = { 0, 0 };
	struct rdma_cm_id *id = connect_to(host, port, &window);
	int status = 0;
	wait_for("GO");
	for (uint64_t round = 0; goes_on(round); round++) {
		uint64_t offset = 4096 + round % 8 * PIECE;
		struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
		memset(buffer, (int)round + 1, PIECE);
		wr.wr.rdma.remote_addr = window.addr + offset;
		wr.wr.rdma.rkey = window.rkey;
		if ((status = request(id, &wr, 0, PIECE)))
			break;
		wr.opcode = IBV_WR_RDMA_READ;
		memset(buffer + PIECE, 0, PIECE);
		if ((status = request(id, &wr, PIECE, PIECE)))
			break;
		CHECK(memcmp(buffer, buffer + PIECE, PIECE) == 0);
		struct ibv_send_wr add = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };
		add.wr.atomic.remote_addr = window.addr;
		add.wr.atomic.compare_add = 3;
		add.wr.atomic.rkey = window.rkey;
		if ((status = request(id, &add, 2 * PIECE, 8)))
			break;
		CHECK(*(uint64_t *)(buffer + 2 * PIECE) == 3 * round);
		if (round == 10)
			printf("moves\n");
	}
	printf("status %d\n", status);
	if (status)
		expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	printf("done\n");
	return 0;
}

/* Adds one so many times to the peer's first number, several at once. */
static int add(const char *host, const char *port)
{
	enum { TIMES = 5000, AT_ONCE = 8 };
	struct window window = { 0, 0 };
	struct rdma_cm_id *id = connect_to(host, port, &window);
	struct ibv_sge sge = { (uintptr_t)buffer, 8, mr->lkey };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc;
	int posted = 0, done = 0;
	wr.wr.atomic.remote_addr = window.addr;
	wr.wr.atomic.compare_add = 1;
	wr.wr.atomic.rkey = window.rkey;
	wait_for("GO");
	while (done < TIMES) {
		for (; posted < TIMES && posted - done < AT_ONCE; posted++)
			CHECK(ibv_post_send(id->qp, &wr, &bad) == 0);
		int count = ibv_poll_cq(cq, 1, &wc);
		CHECK(count >= 0);
		CHECK(count == 0 || wc.status == IBV_WC_SUCCESS);
		done += count;
	}
	printf("added %d\n", done);
	CHECK(rdma_disconnect(id) == 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	return 0;
}

/* Reads by a key that is not the peer's. */
static int misread(const char *host, const char *port)
{
	struct window window = { 0, 0 };
	struct rdma_cm_id *id = connect_to(host, port, &window);
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ };
	wait_for("GO");
	wr.wr.rdma.remote_addr = window.addr;
	wr.wr.rdma.rkey = window.rkey ^ 1;
	printf("status %d\n", request(id, &wr, 0, PIECE));
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	printf("done\n");
	return 0;
}

static int leave(const char *host, const char *port)
{
	struct window window = { 0, 0 };
	struct rdma_cm_id *id = connect_to(host, port, &window);
	struct ibv_sge sge = { (uintptr_t)buffer, PIECE, mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_wc wc;
	wait_for("GO");
	wr.wr.rdma.remote_addr = window.addr;
	wr.wr.rdma.rkey = window.rkey;
	for (wr.wr_id = 0; wr.wr_id < RECEIVES; wr.wr_id++)
		CHECK(ibv_post_send(id->qp, &wr, &bad) == 0);
	CHECK(rdma_disconnect(id) == 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	for (uint64_t i = 0; i < RECEIVES; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i);
	printf("left\n");
	return 0;
}

static volatile sig_atomic_t hung_up;

static void hang_up(int signal)
{
	hung_up = signal;
}

static int serve(const char *port, const char *more, char **argv)
{
	struct rdma_cm_id *id;
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	sigset_t hup, before;
	signal(SIGHUP, hang_up);
	sigemptyset(&hup);
	sigaddset(&hup, SIGHUP);
	sigprocmask(SIG_BLOCK, &hup, &before);
	CHECK((channel = rdma_create_event_channel()));
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&at) == 0);
	CHECK(rdma_listen(id, 1) == 0);
	id = expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	if (!strcmp(more, "reject")) {
		CHECK(rdma_reject(id, "no", 2) == 0);
		while (!hung_up)
			sigsuspend(&before);
		return 0;
	}
	prepare(id, map_of(getenv("MEMORY"), NULL));
	if (is_memory("append"))
		CHECK(fcntl(file, F_SETFL, O_APPEND) == 0);
	struct window window = { (uintptr_t)buffer, mr->rkey };
	struct rdma_conn_param param = {
		.private_data = &window, .private_data_len = sizeof window,
		.responder_resources = 8, .initiator_depth = 8,
	};
	CHECK(rdma_accept(id, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, NULL);
	printf("ready\n");
	while (!hung_up)
		sigsuspend(&before);
	if (!strcmp(more, "exec")) {
		char address[32];
		snprintf(address, sizeof address, "%p", (void *)buffer);
		execl("/proc/self/exe", argv[0], "watch", address, NULL);
		CHECK(!"exec");
	}
	if (!strcmp(more, "shrink")) {
		struct pollfd told = { .fd = channel->fd, .events = POLLIN };
		while (poll(&told, 1, 10) == 0)
			CHECK(ftruncate(file, 4096) == 0);
		expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
		printf("size %ld\n", (long)lseek(file, 0, SEEK_END));
	}
	if (!strcmp(more, "fork")) {
		pid_t child = fork();
		int status;
		CHECK(child >= 0);
		if (child == 0) {
			/* The child has no device: its calls fail, and end nothing of the parent's. */
			struct ibv_wc wc;
			int is_refused = ibv_poll_cq(cq, 1, &wc) < 0 && !ibv_alloc_pd(id->verbs) &&
					 ibv_dereg_mr(mr) != 0;
			exit(is_refused ? 7 : 1);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		printf("forked\n");
		expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
		printf("disconnected\n");
	}
	return 0;
}

static int watch(const char *address)
{
	unsigned char *at = map_of(getenv("MEMORY"), (void *)strtoul(address, NULL, 16));
	/* What was on the way to a file when this program began has come. */
	if (getenv("MEMORY"))
		wait_for("OVER");
	memset(at, 0xaa, LEN);
	printf("watches\n");
	for (int rest = 10; rest > 0; rest -= has_happened("OVER")) {
		usleep(20000);
		for (int i = 0; i < LEN; i++)
			CHECK(at[i] == 0xaa);
	}
	printf("untouched\n");
	return 0;
}

static int wait_for_end(const char *host, const char *port)
{
	struct rdma_cm_id *id = connect_to(host, port, NULL);
	struct ibv_sge sge = { (uintptr_t)buffer, 64, mr->lkey };
	struct ibv_async_event event;
	struct ibv_wc wc;
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		CHECK(ibv_post_recv(id->qp, &wr, &bad) == 0);
	}
	struct ibv_context *both[] = { id->verbs, ibv_open_device(id->verbs->device) };
	CHECK(both[1]);
	printf("waits\n");
	/* Each context is told, once. */
	for (int i = 0; i < 2; i++) {
		CHECK(ibv_get_async_event(both[i], &event) == 0);
		CHECK(event.event_type == IBV_EVENT_DEVICE_FATAL);
		ibv_ack_async_event(&event);
		CHECK(ibv_get_async_event(both[i], &event) != 0);
	}
	printf("fatal\n");
	for (uint64_t i = 0; i < RECEIVES; i++) {
		int count;
		while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
			;
		CHECK(count == 1 && wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i);
	}
	CHECK(ibv_poll_cq(cq, 1, &wc) <= 0);
	CHECK(!ibv_alloc_pd(id->verbs));
	struct rdma_cm_event *none;
	CHECK(rdma_get_cm_event(channel, &none) != 0);
	/* What is left can be ended. */
	rdma_destroy_qp(id);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	printf("flushed\n");
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(argc > 2);
	if (!strcmp(argv[1], "watch"))
		return watch(argv[2]);
	CHECK(argc > 3);
	if (!strcmp(argv[1], "serve"))
		return serve(argv[2], argv[3], argv);
	if (!strcmp(argv[1], "call"))
		return call(argv[2], argv[3]);
	if (!strcmp(argv[1], "add"))
		return add(argv[2], argv[3]);
	if (!strcmp(argv[1], "misread"))
		return misread(argv[2], argv[3]);
	if (!strcmp(argv[1], "leave"))
		return leave(argv[2], argv[3]);
	return wait_for_end(argv[2], argv[3]);
}

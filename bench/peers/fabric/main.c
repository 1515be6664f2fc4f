/* libfabric's provider tcp, for `wharf bench rdma`: what the program of verbs does, by RMA and messages of a connection
 * (FI_EP_MSG). It sleeps where it waits (fi_cq_sread), and moves bytes in its own calls (FI_PROGRESS_MANUAL).
 *
 *   fabric-peer serve fabric KIND HOST                    tells its port, and serves one connection
 *   fabric-peer run fabric KIND HOST PORT MILLISECONDS    says "ready"; measures after each line that it reads */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "peer.h"

enum { SENDS = 1024, RECEIVES = 64, EACH = 4 };

struct window { uint64_t addr, key; };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *events;
static struct fid_ep *ep;
static struct fid_cq *sends, *receives;
static struct fid_mr *mr;
static unsigned char region[REGION] __attribute__((aligned(4096)));
/* Where messages come, and where they are sent from. */
static uint64_t inbox[RECEIVES], outbox;

static struct fi_info *find(const char *host, const char *port, uint64_t flags)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	CHECK(hints);
	hints->caps = FI_MSG | FI_RMA;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->ep_attr->type = FI_EP_MSG;
	hints->fabric_attr->prov_name = strdup("tcp");
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	CHECK(fi_getinfo(FI_VERSION(1, 11), host, port, flags, hints, &info) == 0);
	fi_freeinfo(hints);
	return info;
}

static void open_fabric(struct fi_info *info)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL) == 0);
	CHECK(fi_eq_open(fabric, &attr, &events, NULL) == 0);
}

/* The next event of a connection; what came with it. */
static struct fi_info *expect(uint32_t expected, struct window *window)
{
	struct { struct fi_eq_cm_entry cm; char data[256]; } entry;
	uint32_t event;
	ssize_t len = fi_eq_sread(events, &event, &entry, sizeof entry, -1, 0);
	CHECK(len >= (ssize_t)sizeof entry.cm && event == expected);
	if (window) {
		CHECK(len >= (ssize_t)(sizeof entry.cm + sizeof *window));
		memcpy(window, entry.cm.data, sizeof *window);
	}
	return entry.cm.info;
}

static void receive(uint64_t *slot)
{
	CHECK(fi_recv(ep, slot, sizeof *slot, fi_mr_desc(mr), 0, slot) == 0);
}

static void prepare(struct fi_info *info)
{
	uint64_t rights = FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_UNSPEC, .size = SENDS };
	CHECK(fi_domain(fabric, info, &domain, NULL) == 0);
	CHECK(fi_mr_reg(domain, region, REGION, rights, 0, 0, 0, &mr, NULL) == 0);
	CHECK(fi_cq_open(domain, &attr, &sends, NULL) == 0);
	CHECK(fi_cq_open(domain, &attr, &receives, NULL) == 0);
	CHECK(fi_endpoint(domain, info, &ep, NULL) == 0);
	CHECK(fi_ep_bind(ep, &events->fid, 0) == 0);
	CHECK(fi_ep_bind(ep, &sends->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION) == 0);
	CHECK(fi_ep_bind(ep, &receives->fid, FI_RECV) == 0);
	CHECK(fi_enable(ep) == 0);
	for (int i = 0; i < RECEIVES; i++)
		receive(&inbox[i]);
}

/* Completions of a queue, one at least: asleep until there is one. */
static int wait_for(struct fid_cq *cq, struct fi_cq_entry *entries, int most)
{
	for (;;) {
		ssize_t got = fi_cq_sread(cq, entries, most, NULL, -1);
		if (got > 0)
			return got;
		CHECK(got == -FI_EAGAIN || got == -FI_EINTR);
	}
}

/* The next message; 0 if the connection is over. */
static uint64_t next(void)
{
	struct fi_cq_entry entry;
	ssize_t got;
	do
		got = fi_cq_sread(receives, &entry, 1, NULL, -1);
	while (got == 0 || got == -FI_EAGAIN || got == -FI_EINTR);
	if (got < 0)
		return 0;
	uint64_t value = *(uint64_t *)entry.op_context;
	receive(entry.op_context);
	return value;
}

/* A small message. */
static void tell_peer(uint64_t value)
{
	ssize_t sent;
	outbox = value;
	/* Where there is no room, a look at the queue makes some. */
	while ((sent = fi_inject(ep, &outbox, sizeof outbox, 0)) == -FI_EAGAIN)
		fi_cq_read(sends, NULL, 0);
	CHECK(sent == 0);
}

static void serve(enum kind kind, const char *host)
{
	struct fi_info *info = find(host, NULL, FI_SOURCE);
	struct fid_pep *listener;
	struct sockaddr_in at;
	size_t len = sizeof at;
	struct window own;
	char line[16];
	uint64_t heard;
	open_fabric(info);
	CHECK(fi_passive_ep(fabric, info, &listener, NULL) == 0);
	CHECK(fi_pep_bind(listener, &events->fid, 0) == 0);
	CHECK(fi_listen(listener) == 0);
	CHECK(fi_getname(&listener->fid, &at, &len) == 0);
	snprintf(line, sizeof line, "%d", ntohs(at.sin_port));
	say(line);
	info = expect(FI_CONNREQ, NULL);
	prepare(info);
	own.addr = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)region : 0;
	own.key = fi_mr_key(mr);
	CHECK(fi_accept(ep, &own, sizeof own) == 0);
	expect(FI_CONNECTED, NULL);
	while ((heard = next()) != 0)
		tell_peer(heard == PING ? PING : all_there(kind, region) ? RIGHT : WRONG);
}

/* One write, if there is room. */
static int put(const void *from, size_t len, const struct window *to, uint64_t at, uint64_t flags)
{
	struct iovec iov = { (void *)from, len };
	struct fi_rma_iov remote = { to->addr + at, len, to->key };
	void *desc = fi_mr_desc(mr);
	struct fi_msg_rma msg = { .msg_iov = &iov, .desc = &desc, .iov_count = 1, .rma_iov = &remote, .rma_iov_count = 1 };
	ssize_t sent = fi_writemsg(ep, &msg, flags);
	CHECK(sent == 0 || sent == -FI_EAGAIN);
	return sent == 0;
}

/* Large writes: as many at once as there are places, a quarter of them with a completion. */
static void large(const struct window *to, uint64_t end, uint64_t *messages)
{
	struct fi_cq_entry entries[DEPTH];
	uint64_t posted = 0, done = 0;
	while (now() < end || posted % DEPTH || done < posted) {
		while ((now() < end || posted % DEPTH) && posted - done < DEPTH) {
			uint64_t at = posted % DEPTH * LARGE;
			if (!put(region + at, LARGE, to, at, (posted + 1) % EACH == 0 ? FI_COMPLETION : 0))
				break;
			posted++;
		}
		/* The end may have come between both looks at the clock. */
		if (done < posted)
			done += (uint64_t)wait_for(sends, entries, DEPTH) * EACH;
	}
	*messages += posted;
}

/* Small writes, as many as the queue has room for, in lists. */
static void small(const struct window *to, uint64_t end, uint64_t *messages)
{
	static uint64_t number;
	struct fi_cq_entry entries[SENDS / LIST];
	uint64_t posted = 0, done = 0;
	while (now() < end || posted < SLOTS || posted % LIST || done < posted) {
		while (posted - done < SENDS - LIST && (now() < end || posted < SLOTS || posted % LIST)) {
			uint64_t flags = FI_INJECT | ((posted + 1) % LIST == 0 ? FI_COMPLETION : FI_MORE);
			if (!put(&number, SMALL, to, number % SLOTS * SMALL, flags))
				break;
			number++;
			posted++;
		}
		if (posted - done >= LIST)
			done += (uint64_t)wait_for(sends, entries, SENDS / LIST) * LIST;
		else
			fi_cq_read(sends, NULL, 0);
	}
	*messages += posted;
}

/* One phase, until the server has all of it. */
static void phase(enum kind kind, const struct window *to, uint64_t duration, uint64_t *messages)
{
	uint64_t begun = now(), last = begun;
	if (kind != LATENCY) {
		(kind == WRITE ? large : small)(to, begun + duration, messages);
		tell_peer(END);
		CHECK(next() == RIGHT);
		return;
	}
	while (last < begun + duration) {
		tell_peer(PING);
		CHECK(next() == PING);
		uint64_t at = now();
		took(at - last);
		last = at;
		*messages += 1;
	}
}

static void run(enum kind kind, const char *host, const char *port, uint64_t duration)
{
	struct fi_info *info = find(host, port, 0);
	struct window to;
	uint64_t messages = 0;
	open_fabric(info);
	prepare(info);
	fill(region);
	CHECK(fi_connect(ep, info->dest_addr, NULL, 0) == 0);
	expect(FI_CONNECTED, &to);
	phase(kind, &to, duration / 10, &messages);
	say("ready");
	while (heard()) {
		messages = 0;
		forget();
		uint64_t begun = now();
		phase(kind, &to, duration, &messages);
		tell(messages * (kind == WRITE ? LARGE : SMALL), messages, now() - begun);
	}
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "serve")) {
		serve(kind_of(argv[3]), argv[4]);
		return 0;
	}
	CHECK(argc == 7 && !strcmp(argv[1], "run"));
	run(kind_of(argv[3]), argv[4], argv[5], strtoul(argv[6], NULL, 10) * UINT64_C(1000000));
	return 0;
}

// DPDK's GRO as a peer of `wharf bench lro`: rte_gro_reassemble_burst at one flow; with more,
// rte_gro_reassemble, whose table keeps packets from burst to burst, flushed at the end of a
// round. TCP over IPv4, checksums unseen. Packets are chained, not copied; mbufs are prepared
// before the clock starts and released after it stopped.
//
// crates/bench/src/lro/workload.rs describes the segments.

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_gro.h>
#include <rte_mbuf.h>

#include "peer.h"

enum { ETHERNET_LEN = 14, TCP_LEN = 32, OUT_MAX = 1024, NUMBERS_LEN = 10 * sizeof(uint32_t) };

struct workload {
	// In the order in which they are sent.
	uint32_t segments, orders, payload, burst, lap, transport_at, frame_len, flows, sum,
		 verify;
	const uint16_t *order;
	const uint8_t *frame;
};

struct stream {
	uint32_t round, turn, flow;
};

static struct rte_mempool *pool;
static uint32_t pool_size;

// Packets go back all at once, with no clock running.
static struct rte_mbuf **done;
static uint32_t done_count;

static const char *parse(struct workload *w, const uint8_t *bytes, size_t len)
{
	if (len < NUMBERS_LEN)
		return "the workload is too short";
	memcpy(w, bytes, NUMBERS_LEN);
	size_t orders_len = (size_t)w->segments * w->orders * sizeof *w->order;
	w->order = (const uint16_t *)(bytes + NUMBERS_LEN);
	w->frame = bytes + NUMBERS_LEN + orders_len;
	if (len != NUMBERS_LEN + orders_len + w->frame_len)
		return "the workload has another length";
	if (w->burst > RTE_GRO_MAX_BURST_ITEM_NUM)
		return "bursts are too long";
	if (w->verify)
		return "it verifies no checksum";
	if (w->flows > UINT16_MAX)
		return "max_flow_num has 16 bits";
	return NULL;
}

// The table of a context holds a round; each of its mbufs has the frame's bytes once and for all.
static const char *fill_pool(const struct workload *w)
{
	uint32_t needed = 2 * w->burst;
	if (w->flows > 1)
		needed += w->flows * w->segments;
	if (needed > pool_size) {
		rte_mempool_free(pool);
		free(done);
		pool_size = needed;
		pool = rte_pktmbuf_pool_create("frames", needed, 0, 0,
					       RTE_PKTMBUF_HEADROOM + w->frame_len, SOCKET_ID_ANY);
		done = calloc(needed, sizeof *done);
		if (pool == NULL || done == NULL) {
			pool_size = 0;
			return rte_strerror(rte_errno);
		}
	}
	struct rte_mbuf **all = calloc(pool_size, sizeof *all);
	if (all == NULL || rte_pktmbuf_alloc_bulk(pool, all, pool_size) != 0) {
		free(all);
		return "frames are missing";
	}
	for (uint32_t i = 0; i < pool_size; i++)
		memcpy(rte_pktmbuf_mtod(all[i], void *), w->frame, w->frame_len);
	rte_pktmbuf_free_bulk(all, pool_size);
	free(all);
	return NULL;
}

static struct rte_mbuf *next(const struct workload *w, struct stream *s)
{
	uint32_t flow = s->flow;
	uint32_t order = (flow + s->round) % w->orders;
	uint32_t segment = s->round * w->segments + w->order[order * w->segments + s->turn];
	uint32_t seq = segment * w->payload;
	if (++s->flow == w->flows) {
		s->flow = 0;
		if (++s->turn == w->segments) {
			s->turn = 0;
			s->round++;
		}
	}
	struct rte_mbuf *frame = rte_pktmbuf_alloc(pool);
	if (frame == NULL)
		return NULL;
	uint8_t *bytes = rte_pktmbuf_mtod(frame, uint8_t *);
	memcpy(bytes, w->frame, w->transport_at + TCP_LEN);
	uint8_t *tcp = bytes + w->transport_at;
	tcp[0] = flow >> 8, tcp[1] = flow;
	tcp[4] = seq >> 24, tcp[5] = seq >> 16, tcp[6] = seq >> 8, tcp[7] = seq;
	// RFC 1624: the checksum moves with the words that change.
	uint32_t sum = w->sum + flow + (seq >> 16) + (seq & 0xffff);
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	sum = ~sum;
	tcp[16] = sum >> 8, tcp[17] = sum;
	frame->data_len = w->frame_len;
	frame->pkt_len = w->frame_len;
	frame->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_TCP;
	frame->l2_len = ETHERNET_LEN;
	frame->l3_len = w->transport_at - ETHERNET_LEN;
	frame->l4_len = TCP_LEN;
	return frame;
}

static void take(const struct workload *w, struct rte_mbuf **out, uint32_t count, struct result *r)
{
	for (uint32_t i = 0; i < count; i++) {
		r->large++;
		r->payload += out[i]->pkt_len - w->transport_at - TCP_LEN;
		done[done_count++] = out[i];
	}
}

static void give_back(void)
{
	rte_pktmbuf_free_bulk(done, done_count);
	done_count = 0;
}

// One round; gives the nanoseconds that DPDK took, or 0 if there are no frames left.
static uint64_t round_trip(const struct workload *w, struct stream *s, void *context,
			   struct result *r)
{
	const struct rte_gro_param param = {
		.gro_types = RTE_GRO_TCP_IPV4, .max_flow_num = 1, .max_item_per_flow = w->burst,
	};
	struct rte_mbuf *burst[RTE_GRO_MAX_BURST_ITEM_NUM], *out[OUT_MAX];
	uint64_t took = 0;
	for (uint32_t sent = 0; sent < w->flows * w->segments; sent += w->burst) {
		for (uint32_t i = 0; i < w->burst; i++) {
			burst[i] = next(w, s);
			if (burst[i] == NULL)
				return 0;
		}
		uint64_t begin = now();
		uint16_t left = context ? rte_gro_reassemble(burst, w->burst, context)
					: rte_gro_reassemble_burst(burst, w->burst, &param);
		took += now() - begin;
		take(w, burst, left, r);
		if (!context)
			give_back();
	}
	while (context) {
		uint64_t begin = now();
		uint16_t flushed = rte_gro_timeout_flush(context, 0, RTE_GRO_TCP_IPV4, out, OUT_MAX);
		took += now() - begin;
		if (flushed == 0)
			break;
		take(w, out, flushed, r);
	}
	give_back();
	r->packets += w->flows * w->segments;
	return took;
}

static const char *run(const struct workload *w, uint64_t millis, struct result *r)
{
	const char *wrong = fill_pool(w);
	if (wrong != NULL)
		return wrong;
	void *context = NULL;
	if (w->flows > 1) {
		const struct rte_gro_param param = {
			.gro_types = RTE_GRO_TCP_IPV4, .max_flow_num = w->flows,
			.max_item_per_flow = w->segments, .socket_id = rte_socket_id(),
		};
		context = rte_gro_ctx_create(&param);
		if (context == NULL)
			return "rte_gro_ctx_create";
	}
	struct stream stream = { 0 };
	uint64_t end = now() + millis * 1000000;
	while (wrong == NULL && (r->packets == 0 || now() < end)) {
		uint64_t before = r->packets, took = 0;
		while (wrong == NULL && r->packets - before < w->lap) {
			uint64_t round = round_trip(w, &stream, context, r);
			took += round;
			if (round == 0)
				wrong = "no frames left";
		}
		double lap = (double)took / (double)(r->packets - before);
		if (r->best == 0 || lap < r->best)
			r->best = lap;
	}
	if (context != NULL)
		rte_gro_ctx_destroy(context);
	if (wrong == NULL && r->payload != r->packets * w->payload)
		wrong = "not all payload came out";
	return wrong;
}

const char *lro(const uint8_t *bytes, size_t len, uint64_t millis, struct result *r)
{
	struct workload workload;
	const char *wrong = parse(&workload, bytes, len);
	return wrong ? wrong : run(&workload, millis, r);
}

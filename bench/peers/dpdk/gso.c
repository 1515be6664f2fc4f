// DPDK's GSO as a peer of `wharf bench gso`: rte_gso_segment for TCP over IPv4 and for UDP over
// IPv4, which it cuts into IP fragments; rte_ipv6_fragment_packet for UDP over IPv6. Headers are
// copied to buffers of a pool, payload is attached to them by buffers of another; nothing is
// summed. Buffers come from the pools' caches and go back there while the clock runs: they are there
// only because of the cut.
//
// crates/bench/src/gso/workload.rs describes the super-packet.

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_gso.h>
#include <rte_ip_frag.h>
#include <rte_mbuf.h>

#include "peer.h"

enum {
	ETHERNET_LEN = 14,
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	FRAGMENT_LEN = 8,
	UDP_LEN = 8,
	VIRTIO_NET_HDR_LEN = 10,
	VIRTIO_NET_HDR_GSO_TCPV4 = 1,
	NUMBERS_LEN = 6 * sizeof(uint32_t),
	HEADERS_MAX = 256,
	CACHE = 256,
	// Segments at least between cutting and giving back.
	TURN = 128,
};

struct workload {
	// In the order in which they are sent.
	uint32_t segments, size, mtu, cut_at, lap, frame_len;
	uint8_t gso_type;
	const uint8_t *frame;
};

static struct rte_mempool *headers, *attached, *packets;
static uint32_t pool_size;

static bool is_v6(const struct workload *w)
{
	return w->frame[ETHERNET_LEN] >> 4 == 6;
}

static const char *parse(struct workload *w, const uint8_t *bytes, size_t len)
{
	if (len < NUMBERS_LEN + VIRTIO_NET_HDR_LEN)
		return "the workload is too short";
	memcpy(w, bytes, NUMBERS_LEN);
	w->gso_type = bytes[NUMBERS_LEN + 1];
	w->frame = bytes + NUMBERS_LEN + VIRTIO_NET_HDR_LEN;
	if (len != NUMBERS_LEN + VIRTIO_NET_HDR_LEN + w->frame_len || w->frame_len > UINT16_MAX)
		return "the workload has another length";
	if (w->gso_type != 0 && w->gso_type != VIRTIO_NET_HDR_GSO_TCPV4)
		return "it cuts TCP over IPv4, and UDP into fragments";
	return NULL;
}

// Super-packets that are cut before their segments are given back.
static uint32_t turn(const struct workload *w)
{
	return (TURN + w->segments - 1) / w->segments;
}

// A buffer of the first two pools for every segment of a turn, and what their caches keep.
static const char *fill_pools(const struct workload *w)
{
	uint32_t needed = turn(w) * w->segments + 2 * CACHE;
	if (packets == NULL)
		packets = rte_pktmbuf_pool_create("packets", 1, 0, 0, UINT16_MAX, SOCKET_ID_ANY);
	if (needed > pool_size) {
		rte_mempool_free(headers);
		rte_mempool_free(attached);
		headers = rte_pktmbuf_pool_create("headers", needed, CACHE, 0,
						  RTE_PKTMBUF_HEADROOM + HEADERS_MAX,
						  SOCKET_ID_ANY);
		attached = rte_pktmbuf_pool_create("attached", needed, CACHE, 0, 0, SOCKET_ID_ANY);
		pool_size = needed;
	}
	if (packets == NULL || headers == NULL || attached == NULL) {
		pool_size = 0;
		return rte_strerror(rte_errno);
	}
	return NULL;
}

static struct rte_mbuf *super_packet(const struct workload *w)
{
	struct rte_mbuf *packet = rte_pktmbuf_alloc(packets);
	if (packet == NULL)
		return NULL;
	packet->data_off = 0;
	packet->data_len = w->frame_len;
	packet->pkt_len = w->frame_len;
	memcpy(rte_pktmbuf_mtod(packet, void *), w->frame, w->frame_len);
	packet->l2_len = ETHERNET_LEN;
	packet->l3_len = IPV4_LEN;
	packet->l4_len = w->gso_type ? w->cut_at - ETHERNET_LEN - IPV4_LEN : UDP_LEN;
	// The library for fragments knows no Ethernet.
	if (is_v6(w))
		rte_pktmbuf_adj(packet, ETHERNET_LEN);
	return packet;
}

// How many came out, or what failed as a negative number.
static int cut(const struct workload *w, struct rte_mbuf *packet, struct rte_mbuf **out)
{
	if (is_v6(w))
		return rte_ipv6_fragment_packet(packet, out, w->segments, w->mtu, headers, attached);
	const struct rte_gso_ctx context = {
		.direct_pool = headers,
		.indirect_pool = attached,
		.gso_types = w->gso_type ? RTE_ETH_TX_OFFLOAD_TCP_TSO : RTE_ETH_TX_OFFLOAD_UDP_TSO,
		.gso_size = w->cut_at + w->size,
	};
	// Cutting takes it away.
	packet->ol_flags = RTE_MBUF_F_TX_IPV4;
	packet->ol_flags |= w->gso_type ? RTE_MBUF_F_TX_TCP_SEG : RTE_MBUF_F_TX_UDP_SEG;
	return rte_gso_segment(packet, &context, out, w->segments);
}

// Is what came out what was to be cut?
static const char *check(const struct workload *w, struct rte_mbuf *packet, struct rte_mbuf **out)
{
	static uint8_t buffer[UINT16_MAX];
	int count = cut(w, packet, out);
	if (count < 0)
		return rte_strerror(-count);
	uint32_t headers_len = is_v6(w) ? IPV6_LEN + FRAGMENT_LEN : w->cut_at;
	const char *wrong = (uint32_t)count == w->segments ? NULL : "another number of segments";
	const uint8_t *expected = w->frame + w->cut_at, *end = w->frame + w->frame_len;
	for (int i = 0; i < count && wrong == NULL; i++) {
		uint32_t len = rte_pktmbuf_pkt_len(out[i]) - headers_len;
		const void *payload = NULL;
		if (len <= end - expected)
			payload = rte_pktmbuf_read(out[i], headers_len, len, buffer);
		if (payload == NULL || memcmp(payload, expected, len) != 0)
			wrong = "what came out is not what was to be cut";
		expected += len;
	}
	rte_pktmbuf_free_bulk(out, count);
	return wrong != NULL || expected == end ? wrong : "not everything came out";
}

// Nanoseconds that a lap took, or 0 if something failed.
static uint64_t lap(const struct workload *w, struct rte_mbuf *packet, struct rte_mbuf **out,
		    struct result *r)
{
	uint64_t begin = now();
	for (uint32_t done = 0; done < w->lap; done += turn(w)) {
		uint32_t count = 0;
		for (uint32_t i = 0; i < turn(w); i++) {
			int segments = cut(w, packet, out + count);
			if (segments <= 0)
				return 0;
			count += segments;
		}
		rte_pktmbuf_free_bulk(out, count);
		r->packets += count;
		r->large += turn(w);
	}
	return now() - begin;
}

static const char *run(const struct workload *w, uint64_t millis, struct result *r)
{
	const char *wrong = fill_pools(w);
	if (wrong != NULL)
		return wrong;
	struct rte_mbuf *packet = super_packet(w);
	struct rte_mbuf **out = calloc((size_t)turn(w) * w->segments, sizeof *out);
	if (packet == NULL || out == NULL)
		wrong = "out of memory";
	else
		wrong = check(w, packet, out);
	uint64_t end = now() + millis * 1000000;
	while (wrong == NULL && (r->packets == 0 || now() < end)) {
		uint64_t before = r->packets, took = lap(w, packet, out, r);
		if (took == 0)
			wrong = "no buffers left";
		double each = (double)took / (double)(r->packets - before);
		if (r->best == 0 || each < r->best)
			r->best = each;
	}
	rte_pktmbuf_free(packet);
	free(out);
	return wrong;
}

const char *gso(const uint8_t *bytes, size_t len, uint64_t millis, struct result *r)
{
	struct workload workload;
	const char *wrong = parse(&workload, bytes, len);
	return wrong ? wrong : run(&workload, millis, r);
}

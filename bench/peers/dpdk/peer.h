// What the benches of the DPDK peer have in common.
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct result {
	// Nanoseconds a packet in the fastest lap.
	double best;
	// Packets of the wire's size, and what they became or came from.
	uint64_t packets, large;
	// Bytes of payload that came out.
	uint64_t payload;
};

static inline uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// Run the workload of these bytes for about so long, one lap at least; say what is wrong, if
// something is.
const char *lro(const uint8_t *bytes, size_t len, uint64_t millis, struct result *r);
const char *gso(const uint8_t *bytes, size_t len, uint64_t millis, struct result *r);

#endif

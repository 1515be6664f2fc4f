// DPDK as a peer of `wharf bench`: the start, and the conversation that
// crates/bench/src/peers/process.rs describes.

#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "peer.h"

// EAL without huge pages, devices or files. It would keep this thread on one processor.
static const char *start(char *name)
{
	static char lcore[32];
	cpu_set_t allowed;
	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return "sched_getaffinity";
	int first = 0;
	while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &allowed))
		first++;
	snprintf(lcore, sizeof lcore, "%d", first);
	char *arguments[] = { name, "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry",
			      "-m", "512", "-l", lcore, NULL };
	// It makes directories for files that are not wanted here.
	char directory[] = "/tmp/wharf-bench-dpdk-XXXXXX", prefix[64], inner[80];
	if (mkdtemp(directory) == NULL || setenv("RUNTIME_DIRECTORY", directory, 1) != 0)
		return "mkdtemp";
	int started = rte_eal_init(RTE_DIM(arguments) - 1, arguments);
	snprintf(prefix, sizeof prefix, "%s/dpdk", directory);
	snprintf(inner, sizeof inner, "%s/rte", prefix);
	rmdir(inner), rmdir(prefix), rmdir(directory);
	if (started < 0)
		return rte_strerror(rte_errno);
	if (sched_setaffinity(0, sizeof allowed, &allowed) != 0)
		return "sched_setaffinity";
	return NULL;
}

static const char *answer(const char *bench, const uint8_t *bytes, size_t len, uint64_t millis,
			  struct result *result)
{
	if (strcmp(bench, "lro") == 0)
		return lro(bytes, len, millis, result);
	if (strcmp(bench, "gso") == 0)
		return gso(bytes, len, millis, result);
	return "it has no bench of that name";
}

int main(int count, char **arguments)
{
	const char *absent = count > 0 ? start(arguments[0]) : "no name";
	char bench[16];
	uint64_t millis;
	size_t len;
	while (scanf("%15s %" SCNu64 " %zu", bench, &millis, &len) == 3 && getchar() == '\n') {
		uint8_t *bytes = malloc(len);
		if (bytes == NULL || fread(bytes, 1, len, stdin) != len)
			return 1;
		struct result result = { 0 };
		const char *wrong = absent ? absent : answer(bench, bytes, len, millis, &result);
		if (wrong == NULL)
			printf("{\"ns_per_packet\":%.3f,\"packets\":%" PRIu64 ",\"large\":%" PRIu64
			       "}\n", result.best, result.packets, result.large);
		else
			printf("{\"error\":\"%s\"}\n", wrong);
		fflush(stdout);
		free(bytes);
	}
	return 0;
}

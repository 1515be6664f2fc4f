/* What a peer tells the bench, and the clock. */
#include "peer.h"

static uint32_t *times;
static size_t count;

uint64_t now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * UINT64_C(1000000000) + at.tv_nsec;
}

void say(const char *line)
{
	printf("%s\n", line);
	fflush(stdout);
}

int heard(void)
{
	char line[64];
	return fgets(line, sizeof line, stdin) != NULL;
}

void took(uint64_t nanoseconds)
{
	if (!times)
		CHECK((times = malloc(TIMES * sizeof *times)));
	if (count < TIMES)
		times[count++] = nanoseconds > UINT32_MAX ? UINT32_MAX : nanoseconds;
}

void forget(void)
{
	count = 0;
}

static int by_time(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
	return (a > b) - (a < b);
}

void tell(uint64_t bytes, uint64_t messages, uint64_t nanoseconds)
{
	char line[256];
	uint32_t median = 0, p99 = 0;
	if (count > 0) {
		qsort(times, count, sizeof *times, by_time);
		median = times[count / 2];
		p99 = times[(count - 1) * 99 / 100];
	}
	snprintf(line, sizeof line,
		 "{\"bytes\": %lu, \"messages\": %lu, \"nanoseconds\": %lu, \"median\": %u, \"p99\": %u}", bytes,
		 messages, nanoseconds, median, p99);
	say(line);
}

/* The computations. */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <unistd.h>

#include "wan.h"

enum { TRIES = 20, TRY = 200000 };

static volatile double result;

/* "Basic mathematical computations" (section 4.4), each of which waits for the one before it. */
void compute(uint64_t rounds)
{
	double x = 1.5;
	for (uint64_t i = 0; i < rounds; i++)
		x = x * 1.0000001 + 1.0 / (1.0 + x * x);
	result = x;
}

uint64_t rounds_per_millisecond(void)
{
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t begun = now();
		compute(TRY);
		uint64_t took = now() - begun;
		least = took < least ? took : least;
	}
	return TRY * UINT64_C(1000000) / (least + 1);
}

uint64_t own_cpu(void)
{
	struct timespec at;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return at.tv_sec * UINT64_C(1000000000) + at.tv_nsec;
}

void stay_on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

void yield(void)
{
	sched_yield();
}

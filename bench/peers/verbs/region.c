/* What is written, and whether it is there. */
#include "peer.h"

enum kind kind_of(const char *name)
{
	if (!strcmp(name, "latency"))
		return LATENCY;
	return !strcmp(name, "rate") ? RATE : WRITE;
}

static unsigned char byte_at(int at)
{
	return at % 251 ^ 0x55;
}

void fill(unsigned char *region)
{
	for (int i = 0; i < REGION; i++)
		region[i] = byte_at(i);
}

int all_there(enum kind kind, const unsigned char *region)
{
	uint64_t least = UINT64_MAX, most = 0, value;
	if (kind == WRITE) {
		for (int i = 0; i < REGION - SMALL; i++)
			if (region[i] != byte_at(i))
				return 0;
		return 1;
	}
	for (uint64_t i = 0; i < SLOTS; i++) {
		memcpy(&value, region + i * SMALL, sizeof value);
		if (value % SLOTS != i)
			return 0;
		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	return most - least == SLOTS - 1;
}

/* What the parts of the program share. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	LARGE = 64 << 10, /* bytes of a large write */
	DEPTH = 16,       /* large writes at once */
	SMALL = 8,        /* bytes of a small one */
	LIST = 32,        /* small writes that are posted together */
	SLOTS = 512,      /* places of small writes */
	REGION = DEPTH * LARGE,
	TIMES = 4 << 20,  /* round trips that are remembered */
};

#define CHECK(is_so) \
	do { \
		if (!(is_so)) { \
			printf("{\"error\": \"line %d: %s: %s\"}\n", __LINE__, #is_so, strerror(errno)); \
			fflush(stdout); \
			exit(1); \
		} \
	} while (0)

enum kind { WRITE, LATENCY, RATE };

/* What both ends tell each other; 0 is that the connection is over. */
enum { PING = 1, END = 2, RIGHT = 3, WRONG = 4 };

/* By its name on the command line. */
enum kind kind_of(const char *name);
/* What large writes bring to a region. */
void fill(unsigned char *region);
/* Whether the writes of a phase have come: large ones all, of small ones the last number that belongs to each slot. */
int all_there(enum kind kind, const unsigned char *region);

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now(void);
/* A line to the bench. */
void say(const char *line);
/* Waits for a line of the bench's; whether there was one. */
int heard(void);
/* What a measurement gave. */
void tell(uint64_t bytes, uint64_t messages, uint64_t nanoseconds);
/* Remembers a round trip. */
void took(uint64_t nanoseconds);
/* Forgets all of them. */
void forget(void);

void tcp_serve(enum kind kind, const char *host);
void tcp_run(enum kind kind, const char *host, const char *port, uint64_t duration);

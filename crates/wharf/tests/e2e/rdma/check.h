/* What all programs of verbs of the end-to-end tests share: what does not hold ends them, and is told. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(is_so) \
	do { \
		if (!(is_so)) { \
			printf("line %d: %s: %s\n", __LINE__, #is_so, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

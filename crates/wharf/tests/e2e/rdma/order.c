/* A program of verbs for the end-to-end tests: what a program may rely on that polls memory, and the order of work at its
 * responder. All is of connections of this process with itself.
 *
 *   order ADDRESS CASE COUNT
 *
 *   words    no word that a peer writes is seen in part: of private memory, and of memory by file
 *   atomics  a read shows nothing of an atomic operation behind it
 *   numbers  numbers of queue pairs have 24 bits
 *   late     a receive is posted when something else has completed that comes behind its message
 *   busy     a thread posts without pause while another has requests to the device
 *   writes   writes of 64 KB one after the other, until it is killed */
#include "itself.h"

enum { BUFFER = 1 << 16, CHANGES = 20 };

struct watched {
	void *at;
	int width, is_over;
	uint64_t changes, parts, part;
};

static uint64_t word_at(const void *at, int width)
{
	switch (width) {
	case 8: return *(volatile const uint64_t *)at;
	case 4: return *(volatile const uint32_t *)at;
	default: return *(volatile const uint16_t *)at;
	}
}

static void *watch(void *of)
{
	struct watched *watched = of;
	uint64_t ones = ~0ull >> (64 - 8 * watched->width), before = 0;
	while (!__atomic_load_n(&watched->is_over, __ATOMIC_ACQUIRE)) {
		for (int i = 0; i < 1000; i++) {
			uint64_t word = word_at(watched->at, watched->width);
			if (word == before)
				continue;
			__atomic_fetch_add(&watched->changes, 1, __ATOMIC_RELAXED);
			if (word != 0 && word != ones) {
				watched->parts++;
				watched->part = word;
			}
			before = word;
		}
	}
	return NULL;
}

/* Messages of so many bytes, of zeros and of ones in turn, that end with the word. */
static void write_word(struct ibv_mr *mr, unsigned char *word, int width, int len, int count)
{
	struct watched watched = { .at = word, .width = width };
	struct ibv_sge from[2] = { sge(&near, 0, len), sge(&near, 4096, len) };
	pthread_t thread;
	memset(near.buffer, 0xff, len);
	memset(near.buffer + 4096, 0, len);
	memset(word + width - len, 0, len);
	CHECK(pthread_create(&thread, NULL, watch, &watched) == 0);
	/* So many at least, and until the other thread has seen some. */
	for (int i = 0; i < count || i % 4 || __atomic_load_n(&watched.changes, __ATOMIC_RELAXED) < CHANGES; i++) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)word + width - len, mr->rkey);
		wr.send_flags = i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
		post(&wr, &from[i % 2], 1);
		if (i % 4 == 3)
			CHECK(next(&near).status == IBV_WC_SUCCESS);
	}
	/* Behind the last write. */
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_READ, (uintptr_t)word, mr->rkey);
	CHECK(status(&wr, sge(&near, 8192, width)) == IBV_WC_SUCCESS);
	__atomic_store_n(&watched.is_over, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(thread, NULL) == 0);
	printf("%d of %d bytes: %ju changes, %ju parts, the last %jx\n", width, len, (uintmax_t)watched.changes,
	       (uintmax_t)watched.parts, (uintmax_t)watched.part);
	CHECK(watched.parts == 0);
}

/* Returns the shortest word that the kernel stores as one. On x86 without fast short copies it copies 1 to 3 bytes byte by byte
 * (memcpy_orig), and to a file anything under 8 bytes (rep_movs_alternative). */
static int shortest_word(int is_of_file)
{
	int shortest = 2;
#ifdef __x86_64__
	static int has_fsrm = -1;
	if (has_fsrm < 0) {
		char *line = NULL;
		size_t size = 0;
		FILE *file = fopen("/proc/cpuinfo", "r");
		CHECK(file);
		has_fsrm = 0;
		while (!has_fsrm && getline(&line, &size, file) > 0)
			has_fsrm = strncmp(line, "flags", 5) == 0 && strstr(line, " fsrm") != NULL;
		free(line);
		fclose(file);
	}
	if (!has_fsrm)
		shortest = is_of_file ? 8 : 4;
#endif
	if (shortest > 2)
		printf("%s memory: words of less than %d bytes are left out, as this processor has no fsrm\n",
		       is_of_file ? "file" : "private", shortest);
	return shortest;
}

static void words_of(int flags, int fd, int count)
{
	unsigned char *buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(buffer != MAP_FAILED);
	memset(buffer, 0, BUFFER);
	struct ibv_mr *mr = ibv_reg_mr(far.pd, buffer, BUFFER, ALL);
	CHECK(mr);
	int shortest = shortest_word(fd >= 0);
	for (int width = 8; width >= shortest; width /= 2) {
		/* Alone, at the end of a message, and beside a word of twice the width. */
		write_word(mr, buffer + 64, width, width, count);
		write_word(mr, buffer + 512 + width, width, 3 * width, count);
	}
	/* One that begins before the page of its word. */
	write_word(mr, buffer + 8192, 8, 3000, count / 4);
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(munmap(buffer, BUFFER) == 0);
}

static void words(int count)
{
	int fd = memfd_create("words", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, BUFFER) == 0);
	connect_both();
	words_of(MAP_PRIVATE | MAP_ANONYMOUS, -1, count);
	words_of(MAP_SHARED, fd, count);
	disconnect();
}

static void atomics(int count)
{
	connect_both();
	struct ibv_sge of_read = sge(&near, 0, 64), of_atomic = sge(&near, 4096, 8);
	uint64_t *there = (uint64_t *)far.buffer, *read = (uint64_t *)near.buffer, *was = (uint64_t *)(near.buffer + 4096);
	for (uint64_t i = 0; i < (uint64_t)count; i++) {
		struct ibv_send_wr first = remote(IBV_WR_RDMA_READ, (uintptr_t)there, far.mr->rkey), *bad;
		struct ibv_send_wr second = remote(IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)&there[3], far.mr->rkey);
		second.wr.atomic.compare_add = 1;
		first.sg_list = &of_read;
		second.sg_list = &of_atomic;
		first.num_sge = second.num_sge = 1;
		first.send_flags = second.send_flags = IBV_SEND_SIGNALED;
		first.next = &second;
		CHECK(ibv_post_send(near.id->qp, &first, &bad) == 0);
		CHECK(next(&near).status == IBV_WC_SUCCESS && next(&near).status == IBV_WC_SUCCESS);
		if (read[3] != i || *was != i) {
			printf("round %ju: the read shows %ju, the atomic operation %ju\n", (uintmax_t)i, (uintmax_t)read[3],
			       (uintmax_t)*was);
			exit(1);
		}
	}
	CHECK(there[3] == (uint64_t)count);
	disconnect();
}

static void numbers(int count)
{
	connect_both();
	struct ibv_qp_init_attr attr = {
		.send_cq = near.cq, .recv_cq = near.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	for (int i = 0; i < count; i++) {
		struct ibv_qp *qp = ibv_create_qp(near.pd, &attr);
		CHECK(qp && qp->qp_num > 1 && qp->qp_num < 1 << 24);
		CHECK(ibv_destroy_qp(qp) == 0);
	}
	disconnect();
}

static void late(int count)
{
	for (uses_srq = 0; uses_srq < 2; uses_srq++) {
		connect_both();
		for (int i = 0; i < count; i++) {
			struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
			struct ibv_sge own = sge(&far, 0, 64), into = sge(&far, 4096, 64);
			memset(near.buffer, i, 64);
			CHECK(status(&wr, sge(&near, 0, 64)) == IBV_WC_SUCCESS);
			struct ibv_send_wr read = remote(IBV_WR_RDMA_READ, (uintptr_t)near.buffer, near.mr->rkey);
			read.sg_list = &own;
			read.num_sge = 1;
			read.send_flags = IBV_SEND_SIGNALED;
			CHECK(ibv_post_send(far.id->qp, &read, &bad) == 0);
			struct ibv_wc wc = next(&far);
			if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RDMA_READ) {
				printf("round %d: %s, operation %d\n", i, ibv_wc_status_str(wc.status), wc.opcode);
				exit(1);
			}
			receive(&far, i, &into, 1);
			wc = next(&far);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == (uint64_t)i);
			CHECK(memcmp(far.buffer + 4096, near.buffer, 64) == 0 && far.buffer[63] == (unsigned char)i);
		}
		disconnect();
	}
	uses_srq = 0;
}

static int is_over;

static void *post_on(void *of)
{
	struct ibv_sge from = sge(&near, 0, 64);
	for (int i = 1; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i++) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
		wr.send_flags = IBV_SEND_INLINE | (i % 8 == 0 ? IBV_SEND_SIGNALED : 0);
		post(&wr, &from, 1);
		if (i % 8 == 0)
			CHECK(next(&near).status == IBV_WC_SUCCESS);
	}
	return of;
}

static void busy(int count)
{
	pthread_t thread;
	connect_both();
	CHECK(pthread_create(&thread, NULL, post_on, NULL) == 0);
	for (int i = 0; i < count; i++) {
		struct ibv_mr *mr = ibv_reg_mr(near.pd, near.buffer, 4096, ALL);
		CHECK(mr && ibv_dereg_mr(mr) == 0);
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(thread, NULL) == 0);
	disconnect();
}

static void writes(void)
{
	connect_both();
	for (;;) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
		CHECK(status(&wr, sge(&near, 0, 1 << 16)) == IBV_WC_SUCCESS);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	int count = atoi(argv[3]);
	begin(argv[1]);
	if (strcmp(argv[2], "words") == 0)
		words(count);
	else if (strcmp(argv[2], "atomics") == 0)
		atomics(count);
	else if (strcmp(argv[2], "numbers") == 0)
		numbers(count);
	else if (strcmp(argv[2], "late") == 0)
		late(count);
	else if (strcmp(argv[2], "busy") == 0)
		busy(count);
	else
		writes();
	printf("all\n");
	return 0;
}

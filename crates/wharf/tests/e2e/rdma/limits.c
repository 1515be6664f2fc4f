/* A program of verbs for the end-to-end tests: as much as ibv_query_device(3) says that a process may have, and one more.
 *
 *   limits ADDRESS fill    makes all that it is given, says "full", and on SIGHUP that one can be made where one has ended;
 *                          regions and windows, of which there are so many, if WHARF_RDMA_WINDOWS is in the environment
 *   limits ADDRESS write   writes to itself */
#include <sys/mman.h>

#include "itself.h"

static struct ibv_context *context;
static struct ibv_device_attr limit;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void *make_pd(void)
{
	return ibv_alloc_pd(context);
}

static int end_pd(void *it)
{
	return ibv_dealloc_pd(it);
}

static void *make_cq(void)
{
	return ibv_create_cq(context, 1, NULL, NULL, 0);
}

static void *make_large_cq(void)
{
	return ibv_create_cq(context, limit.max_cqe, NULL, NULL, 0);
}

static int end_cq(void *it)
{
	return ibv_destroy_cq(it);
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	return ibv_create_srq(pd, &attr);
}

static int end_srq(void *it)
{
	return ibv_destroy_srq(it);
}

static void *make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	return ibv_create_qp(pd, &attr);
}

static int end_qp(void *it)
{
	return ibv_destroy_qp(it);
}

/* Regions and windows are counted together. */
static void *make_mw(void)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_2);
}

static int end_mw(void *it)
{
	return ibv_dealloc_mw(it);
}

struct kind {
	const char *name;
	void *(*make)(void);
	int (*end)(void *);
	/* How many there may be; the bytes of large queues allow fewer. */
	int most, made;
	void **all;
};

/* What does not come is an error, too. */
static void expect_soon(void)
{
	alarm(110);
}

static void fill(struct kind *of)
{
	expect_soon();
	int room = of->most + 1;
	CHECK((of->all = calloc(room, sizeof *of->all)));
	while (of->made < room && (of->all[of->made] = of->make()))
		of->made++;
	printf("%s %d of %d: %s\n", of->name, of->made, of->most, strerror(errno));
	CHECK(errno == ENOMEM && of->made > 0 && of->made <= of->most);
}

/* Where one ends another is given. */
static void replace_one(struct kind *of)
{
	CHECK(of->end(of->all[0]) == 0);
	CHECK((of->all[0] = of->make()));
	CHECK(!of->make() && errno == ENOMEM);
}

static void end_all(struct kind *of)
{
	for (int i = 0; i < of->made; i++)
		CHECK(of->end(of->all[i]) == 0);
	free(of->all);
}

static void each(struct kind *kinds, int count)
{
	int signal;
	sigset_t hup;
	sigemptyset(&hup);
	sigaddset(&hup, SIGHUP);
	for (int i = 0; i < count; i++)
		fill(&kinds[i]);
	expect_soon();
	printf("full\n");
	CHECK(sigwait(&hup, &signal) == 0);
	expect_soon();
	for (int i = 0; i < count; i++)
		replace_one(&kinds[i]);
	while (count-- > 0) {
		expect_soon();
		end_all(&kinds[count]);
	}
	printf("empty\n");
}

/* What is longer than a region may be is refused before a page of it is brought in. */
static void register_too_much(void)
{
	size_t len = limit.max_mr_size + 4096;
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return;
	CHECK(!ibv_reg_mr(pd, at, len, IBV_ACCESS_LOCAL_WRITE) && errno == ENOMEM);
	CHECK(munmap(at, len) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	expect_soon();
	begin(argv[1]);
	if (!strcmp(argv[2], "write")) {
		write_to_itself();
		disconnect();
		return 0;
	}
	sigset_t hup;
	sigemptyset(&hup);
	sigaddset(&hup, SIGHUP);
	sigprocmask(SIG_BLOCK, &hup, NULL);
	context = listener->verbs;
	CHECK(ibv_query_device(context, &limit) == 0);
	CHECK((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 1, NULL, NULL, 0)));
	register_too_much();
	struct kind numbers[] = {
		/* Another is that of identifiers. */
		{ "protection domains", make_pd, end_pd, limit.max_pd - 2 },
		{ "completion queues", make_cq, end_cq, limit.max_cq - 1 },
		{ "shared receive queues", make_srq, end_srq, limit.max_srq },
		{ "queue pairs", make_qp, end_qp, limit.max_qp },
		{ "regions and windows", make_mw, end_mw, limit.max_mr },
	};
	struct kind bytes[] = { { "bytes of queues", make_large_cq, end_cq, limit.max_cq } };
	int count = sizeof numbers / sizeof *numbers - !getenv("WHARF_RDMA_WINDOWS");
	each(numbers, count);
	for (int i = 0; i < count; i++)
		CHECK(numbers[i].made == numbers[i].most);
	each(bytes, 1);
	CHECK(bytes[0].made < bytes[0].most);
	printf("all\n");
	return 0;
}

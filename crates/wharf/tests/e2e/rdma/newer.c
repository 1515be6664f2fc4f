/* Functions that rdma-core has had since release 44, on objects of this device. The headers that are installed may not have
 * them: they are declared here, and looked up by name.
 *
 *   newer ADDRESS CASE   does one case, over a connection of this process with itself, and says "done" */
#include "cases.h"
#include <dlfcn.h>
#include <sys/epoll.h>

/* As in infiniband/verbs.h and rdma/rdma_cma.h of release 65, under other names. */
enum { MASK_IOVA = 1, MASK_ADDR = 2, MASK_FD = 4, MASK_FD_OFFSET = 8, MASK_DMAH = 16, MASK_BUF = 32 };
struct init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};
struct dmah_attr { uint32_t comp_mask, cpu_id; uint8_t ph, tph_mem_type; };
struct dmah { struct ibv_context *context; };
struct counter { struct ibv_context *context; uint32_t handle; };
struct counter_attr { uint32_t comp_mask; int type; uint32_t flags; };
struct counter_caps { uint64_t max_value; uint32_t max_counters, operations; };
struct attach_attr { uint32_t comp_mask, op_mask; };
/* One of whoever has device memory: its first field is the context. */
struct dm { struct ibv_context *context; void *rest[4]; };
enum { EVENT_USER = 18 };

#define FUNCTION(type, name, ...) \
	typedef type (*name##_type)(__VA_ARGS__); \
	static type (*new_##name)(__VA_ARGS__); \
	static void find_##name(void) { CHECK((new_##name = (name##_type)dlsym(RTLD_DEFAULT, #name))); }

FUNCTION(struct ibv_mr *, ibv_reg_mr_ex, struct ibv_pd *, struct init_attr *)
FUNCTION(struct dmah *, ibv_alloc_dmah, struct ibv_context *, struct dmah_attr *)
FUNCTION(int, ibv_dealloc_dmah, struct dmah *)
FUNCTION(int, ibv_dm_export_dmabuf_fd, struct dm *)
FUNCTION(int, ibv_query_port_speed, struct ibv_context *, uint32_t, uint64_t *)
FUNCTION(void *, ibv_alloc_buf, struct ibv_pd *, size_t, void **)
FUNCTION(void, ibv_free_buf, void *)
FUNCTION(struct ibv_mr *, ibv_reg_buf_mr, struct ibv_pd *, void *, void *, size_t, int)
FUNCTION(int, ibv_export_buf_dmabuf_fd, void *)
FUNCTION(int, _ibv_query_comp_cntr_caps, struct ibv_context *, struct counter_caps *, size_t)
FUNCTION(struct counter *, ibv_create_comp_cntr, struct ibv_context *, struct counter_attr *)
FUNCTION(int, ibv_destroy_comp_cntr, struct counter *)
FUNCTION(int, ibv_set_comp_cntr, struct counter *, uint64_t)
FUNCTION(int, ibv_set_err_comp_cntr, struct counter *, uint64_t)
FUNCTION(int, ibv_inc_comp_cntr, struct counter *, uint64_t)
FUNCTION(int, ibv_inc_err_comp_cntr, struct counter *, uint64_t)
FUNCTION(int, ibv_read_comp_cntr, struct counter *, uint64_t *)
FUNCTION(int, ibv_read_err_comp_cntr, struct counter *, uint64_t *)
FUNCTION(int, ibv_qp_attach_comp_cntr, struct ibv_qp *, struct counter *, struct attach_attr *)
FUNCTION(int, rdma_resolve_addrinfo, struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *)
FUNCTION(int, rdma_query_addrinfo, struct rdma_cm_id *, struct rdma_addrinfo **)
FUNCTION(int, rdma_write_cm_event, struct rdma_cm_id *, int, int, uint64_t)
FUNCTION(int, repoll_create, int)
FUNCTION(int, repoll_ctl, int, int, int, struct epoll_event *)
FUNCTION(int, repoll_wait, int, struct epoll_event *, int, int)

/* The call fails with this error, which it returns, or which is in errno. */
#define RETURNS(error, call) CHECK((errno = 0, (call) == (error)))
#define FAILS(error, call) CHECK((errno = 0, (call) == -1 && errno == (error)))
#define MAKES_NONE(error, call) CHECK((errno = 0, !(call) && errno == (error)))

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, SIZE = 3 * 4096 };

/* A write of near's, of eight bytes of 0x5a, arrives in memory of far's that has this key and this address. */
static void writes_to(uint32_t rkey, uint64_t remote, unsigned char *memory)
{
	unsigned char from[8];
	struct ibv_mr *own = ibv_reg_mr(near->pd, from, sizeof from, IBV_ACCESS_LOCAL_WRITE);
	CHECK(own);
	memset(from, 0x5a, sizeof from);
	memset(memory, 0, sizeof from);
	struct ibv_sge sge = { (uintptr_t)from, sizeof from, own->lkey };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	}, *bad;
	struct ibv_wc wc;
	int count;
	CHECK(ibv_post_send(near->qp, &wr, &bad) == 0);
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
	/* A write has completed when the peer has it: a read of nothing behind it has come back then. */
	wr.opcode = IBV_WR_RDMA_READ;
	wr.num_sge = 0;
	CHECK(ibv_post_send(near->qp, &wr, &bad) == 0);
	while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, from, sizeof from));
	CHECK(ibv_dereg_mr(own) == 0);
}

/* Memory is registered by the newer calls as by the older ones. */
static void regions(void)
{
	static unsigned char memory[4096];
	void *buf, *other;
	unsigned char *allocated;
	struct ibv_mr *mr;
	connect_both();
	find_ibv_reg_mr_ex();
	find_ibv_alloc_buf();
	find_ibv_free_buf();
	find_ibv_reg_buf_mr();
	find_ibv_export_buf_dmabuf_fd();

	/* By address; fields that the mask does not name are not read. */
	struct init_attr attr = {
		.length = sizeof memory, .access = ACCESS, .comp_mask = MASK_ADDR, .addr = memory,
		.iova = 1, .fd = -1, .fd_offset = 1, .dmah = (void *)1, .buf = (void *)1,
	};
	CHECK((mr = new_ibv_reg_mr_ex(far->pd, &attr)));
	CHECK(mr->context == far->verbs && mr->pd == far->pd && mr->addr == memory);
	CHECK(mr->length == sizeof memory && attr.comp_mask == MASK_ADDR);
	writes_to(mr->rkey, (uintptr_t)memory + 16, memory + 16);
	CHECK(ibv_dereg_mr(mr) == 0);

	/* At an address that the program says. */
	attr.comp_mask = MASK_ADDR | MASK_IOVA;
	attr.iova = 0x10000;
	CHECK((mr = new_ibv_reg_mr_ex(far->pd, &attr)));
	writes_to(mr->rkey, 0x10000 + 24, memory + 24);
	CHECK(ibv_dereg_mr(mr) == 0);

	/* A buffer of the library's. */
	CHECK((allocated = new_ibv_alloc_buf(far->pd, SIZE, &buf)));
	CHECK((uintptr_t)allocated % 4096 == 0);
	CHECK((mr = new_ibv_reg_buf_mr(far->pd, buf, allocated + 4096, 4096, ACCESS)));
	CHECK(mr->addr == allocated + 4096 && mr->length == 4096);
	writes_to(mr->rkey, (uintptr_t)allocated + 4096, allocated + 4096);
	CHECK(ibv_dereg_mr(mr) == 0);
	attr = (struct init_attr){
		.length = SIZE, .access = ACCESS, .comp_mask = MASK_ADDR | MASK_BUF, .addr = allocated, .buf = buf,
	};
	CHECK((mr = new_ibv_reg_mr_ex(far->pd, &attr)));
	CHECK(ibv_dereg_mr(mr) == 0);
	MAKES_NONE(EINVAL, new_ibv_reg_buf_mr(far->pd, buf, allocated + 4096, SIZE, ACCESS));
	MAKES_NONE(EINVAL, new_ibv_reg_buf_mr(far->pd, buf, allocated - 1, 2, ACCESS));
	MAKES_NONE(EINVAL, new_ibv_reg_buf_mr(far->pd, buf, allocated + SIZE + 1, 0, ACCESS));
	struct ibv_pd *pd = ibv_alloc_pd(far->verbs);
	CHECK(pd);
	MAKES_NONE(EINVAL, new_ibv_reg_buf_mr(pd, buf, allocated, SIZE, ACCESS));
	CHECK(ibv_dealloc_pd(pd) == 0);
	attr.comp_mask = MASK_BUF;
	MAKES_NONE(EINVAL, new_ibv_reg_mr_ex(far->pd, &attr));
	attr.comp_mask = MASK_BUF | MASK_ADDR | MASK_FD;
	MAKES_NONE(EINVAL, new_ibv_reg_mr_ex(far->pd, &attr));
	FAILS(ENODATA, new_ibv_export_buf_dmabuf_fd(buf));
	new_ibv_free_buf(buf);
	MAKES_NONE(ENOMEM, new_ibv_alloc_buf(far->pd, SIZE_MAX / 2, &other));

	/* What an address is needed for, and what there is not. */
	attr.comp_mask = 0;
	MAKES_NONE(EINVAL, new_ibv_reg_mr_ex(far->pd, &attr));
	attr.comp_mask = MASK_ADDR | MASK_FD_OFFSET;
	MAKES_NONE(EINVAL, new_ibv_reg_mr_ex(far->pd, &attr));
	attr.comp_mask = MASK_FD | MASK_FD_OFFSET | MASK_IOVA;
	MAKES_NONE(EOPNOTSUPP, new_ibv_reg_mr_ex(far->pd, &attr));
	attr.comp_mask = MASK_ADDR | MASK_DMAH;
	MAKES_NONE(EOPNOTSUPP, new_ibv_reg_mr_ex(far->pd, &attr));
	attr.comp_mask = MASK_ADDR | UINT64_C(1) << 40;
	MAKES_NONE(EOPNOTSUPP, new_ibv_reg_mr_ex(far->pd, &attr));
	CHECK(works(near));
}

/* The speed is that of the port's other attributes. */
static void speed(void)
{
	static const unsigned lanes[] = { [1] = 1, [2] = 4, [4] = 8, [8] = 12 };
	/* In 100 Mb/s: SDR, DDR, QDR. */
	static const unsigned lane[] = { [1] = 25, [2] = 50, [4] = 100 };
	struct ibv_port_attr port;
	uint64_t all = 0;
	connect_both();
	find_ibv_query_port_speed();
	CHECK(ibv_query_port(near->verbs, 1, &port) == 0);
	CHECK(port.active_width <= 8 && port.active_speed <= 4);
	RETURNS(0, new_ibv_query_port_speed(near->verbs, 1, &all));
	CHECK(all > 0 && all == (uint64_t)lanes[port.active_width] * lane[port.active_speed]);
	RETURNS(EINVAL, new_ibv_query_port_speed(near->verbs, 2, &all));
	RETURNS(EINVAL, new_ibv_query_port_speed(near->verbs, 257, &all));
}

/* What there is not fails, and leaves what there is. */
static void not_served(void)
{
	struct dmah_attr dmah_attr = { 0 };
	struct counter_attr counter_attr = { 0 };
	struct counter_caps caps;
	struct attach_attr attach = { .op_mask = 1 };
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *info = NULL;
	struct epoll_event event = { .events = EPOLLIN };
	uint64_t value = 0;
	connect_both();
	/* What a program has that was made for another device. */
	struct dmah dmah = { near->verbs };
	struct dm dm = { .context = near->verbs };
	struct counter counter = { near->verbs, 0 };

	find_ibv_alloc_dmah();
	find_ibv_dealloc_dmah();
	MAKES_NONE(EOPNOTSUPP, new_ibv_alloc_dmah(near->verbs, &dmah_attr));
	RETURNS(EOPNOTSUPP, new_ibv_dealloc_dmah(&dmah));
	find_ibv_dm_export_dmabuf_fd();
	FAILS(EOPNOTSUPP, new_ibv_dm_export_dmabuf_fd(&dm));

	find__ibv_query_comp_cntr_caps();
	find_ibv_create_comp_cntr();
	find_ibv_destroy_comp_cntr();
	find_ibv_set_comp_cntr();
	find_ibv_set_err_comp_cntr();
	find_ibv_inc_comp_cntr();
	find_ibv_inc_err_comp_cntr();
	find_ibv_read_comp_cntr();
	find_ibv_read_err_comp_cntr();
	find_ibv_qp_attach_comp_cntr();
	RETURNS(EOPNOTSUPP, new__ibv_query_comp_cntr_caps(near->verbs, &caps, sizeof caps));
	MAKES_NONE(EOPNOTSUPP, new_ibv_create_comp_cntr(near->verbs, &counter_attr));
	RETURNS(EOPNOTSUPP, new_ibv_set_comp_cntr(&counter, 1));
	RETURNS(EOPNOTSUPP, new_ibv_set_err_comp_cntr(&counter, 1));
	RETURNS(EOPNOTSUPP, new_ibv_inc_comp_cntr(&counter, 1));
	RETURNS(EOPNOTSUPP, new_ibv_inc_err_comp_cntr(&counter, 1));
	RETURNS(EOPNOTSUPP, new_ibv_read_comp_cntr(&counter, &value));
	RETURNS(EOPNOTSUPP, new_ibv_read_err_comp_cntr(&counter, &value));
	RETURNS(EOPNOTSUPP, new_ibv_qp_attach_comp_cntr(near->qp, &counter, &attach));
	RETURNS(EOPNOTSUPP, new_ibv_destroy_comp_cntr(&counter));

	find_rdma_resolve_addrinfo();
	find_rdma_query_addrinfo();
	find_rdma_write_cm_event();
	FAILS(EOPNOTSUPP, new_rdma_resolve_addrinfo(near, "127.0.0.1", "1", &hints));
	FAILS(EOPNOTSUPP, new_rdma_query_addrinfo(near, &info));
	CHECK(!info);
	FAILS(EOPNOTSUPP, new_rdma_write_cm_event(near, EVENT_USER, 0, 7));
	FAILS(EINVAL, new_rdma_write_cm_event(near, RDMA_CM_EVENT_DISCONNECTED, 0, 7));
	CHECK(is_readable(channel, 0) == 0);

	find_repoll_create();
	find_repoll_ctl();
	find_repoll_wait();
	FAILS(EOPNOTSUPP, new_repoll_create(0));
	FAILS(EOPNOTSUPP, new_repoll_ctl(0, EPOLL_CTL_ADD, 0, &event));
	FAILS(EOPNOTSUPP, new_repoll_wait(0, &event, 1, 0));

	CHECK(!strcmp(rdma_event_str(16), "RDMA_CM_EVENT_ADDRINFO_RESOLVED"));
	CHECK(!strcmp(rdma_event_str(17), "RDMA_CM_EVENT_ADDRINFO_ERROR"));
	CHECK(!strcmp(ibv_event_type_str(20), "Device link speed change"));
	CHECK(works(near));
	end(near);
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	end(far);
}

int main(int argc, char **argv)
{
	static const struct test cases[] = {
		{ "regions", regions }, { "speed", speed }, { "not_served", not_served },
	};
	return run(argc, argv, cases, sizeof cases / sizeof *cases);
}

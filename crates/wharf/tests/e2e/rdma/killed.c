/* A program of verbs for the end-to-end tests: what is outstanding when the device is killed.
 *
 *   killed ADDRESS PID   stops the device, posts, kills it, and says after how many microseconds it was told */
#include "itself.h"
#include <sched.h>
#include <time.h>

static long long now(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return time.tv_sec * 1000000ll + time.tv_nsec / 1000;
}

/* It may also have been done before. */
static void flushed_or_done(struct end *of, uint64_t wr_id, int may_be_done)
{
	struct ibv_wc wc = next(of);
	if (wc.status == IBV_WC_SUCCESS && may_be_done)
		wc.status = IBV_WC_WR_FLUSH_ERR;
	if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.wr_id != wr_id || wc.qp_num != of->id->qp->qp_num) {
		printf("%s of %llu, not of %llu\n", ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id,
		       (unsigned long long)wr_id);
		exit(1);
	}
}

static void flushed(struct end *of, uint64_t wr_id)
{
	flushed_or_done(of, wr_id, 0);
}

int main(int argc, char **argv)
{
	enum { SENDS = 12, RECEIVES = 3, LARGE = 50 };
	static const int opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
				       IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_async_event event;
	struct ibv_wc wc;
	CHECK(argc == 3);
	alarm(100);
	begin(argv[1]);
	pid_t device = atoi(argv[2]);
	connect_both();
	struct ibv_sge of_near = sge(&near, 0, 8), of_far = sge(&far, 0, 8);
	/* In the middle of a message, as a rule: its receive is begun, and not done. */
	struct ibv_sge all_of_near[SGES], all_of_far[SGES];
	for (int i = 0; i < SGES; i++) {
		all_of_near[i] = sge(&near, 0, LEN);
		all_of_far[i] = sge(&far, 0, LEN);
	}
	memset(near.buffer, 1, LEN);
	receive(&far, LARGE, all_of_far, SGES);
	for (int i = 0; i < RECEIVES; i++) {
		receive(&near, 100 + i, &of_near, 1);
		receive(&far, 200 + i, &of_far, 1);
	}
	struct ibv_send_wr large = { .opcode = IBV_WR_SEND, .wr_id = LARGE, .send_flags = IBV_SEND_SIGNALED };
	post(&large, all_of_near, SGES);
	while (!*(volatile unsigned char *)far.buffer)
		sched_yield();
	/* It may still do what it has begun; what is posted once it stands still, it does not see. */
	stop(device);
	for (int i = 0; i < SENDS; i++) {
		struct ibv_send_wr wr = remote(opcodes[i % 4], (uintptr_t)far.buffer, far.mr->rkey);
		wr.wr_id = i;
		/* Also those that would say nothing if they were done. */
		wr.send_flags = i % 4 == 2 ? 0 : IBV_SEND_SIGNALED;
		post(&wr, &of_near, 1);
	}
	long long since = now();
	CHECK(kill(device, SIGKILL) == 0);
	do {
		CHECK(ibv_get_async_event(near.id->verbs, &event) == 0);
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
	printf("told %lld\n", now() - since);
	/* Who was told polls until there is nothing more: the first time it is there. */
	CHECK(ibv_poll_cq(near.cq, 1, &wc) == 1 && wc.wr_id == LARGE);
	flushed_or_done(&far, LARGE, 1);
	for (int i = 0; i < SENDS; i++)
		flushed(&near, i);
	for (int i = 0; i < RECEIVES; i++) {
		flushed(&near, 100 + i);
		flushed(&far, 200 + i);
	}
	CHECK(ibv_poll_cq(near.cq, 1, &wc) <= 0 && ibv_poll_cq(far.cq, 1, &wc) <= 0);
	/* What is left can be ended. */
	rdma_destroy_qp(near.id);
	rdma_destroy_qp(far.id);
	CHECK(rdma_destroy_id(near.id) == 0 && rdma_destroy_id(far.id) == 0 && rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(channel);
	printf("flushed\n");
	return 0;
}

/* A program of verbs for the end-to-end tests: which system calls it makes for messages.
 *
 *   calls ADDRESS PID COUNT   posts while the device PID stands still; on SIGHUP it writes and sends so often to itself
 *
 * A seccomp filter traps every system call. The handler counts it, and makes it with a sixth argument that the filter lets
 * pass. */
#include "itself.h"
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

enum { PASSES = 0x77686172 };

/* The device is woken by eight bytes to an eventfd. Whoever polls in vain gives way, and looks whether the device is there. */
static volatile int rings, yields, looks, others, last_other;

static int does_not_wait(const struct timespec *time)
{
	return time && time->tv_sec == 0 && time->tv_nsec == 0;
}

static void forget(void)
{
	rings = yields = looks = others = 0;
}

static void trapped(int signal, siginfo_t *info, void *context)
{
	greg_t *of = ((ucontext_t *)context)->uc_mcontext.gregs;
	long number = of[REG_RAX], result;
	(void)signal;
	(void)info;
	if (number == SYS_write && of[REG_RDX] == 8) {
		rings++;
	} else if (number == SYS_sched_yield) {
		yields++;
	} else if (number == SYS_ppoll && does_not_wait((const struct timespec *)of[REG_RDX])) {
		looks++;
	} else {
		others++;
		last_other = number;
	}
	register long fourth asm("r10") = of[REG_R10];
	register long fifth asm("r8") = of[REG_R8];
	register long sixth asm("r9") = PASSES;
	asm volatile("syscall" : "=a"(result)
		     : "a"(number), "D"(of[REG_RDI]), "S"(of[REG_RSI]), "d"(of[REG_RDX]), "r"(fourth), "r"(fifth),
		       "r"(sixth)
		     : "rcx", "r11", "memory");
	of[REG_RAX] = result;
}

static void trap_all(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PASSES, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	struct sigaction action = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER };
	CHECK(sigaction(SIGSYS, &action, NULL) == 0);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Each is seen by whoever polls its last byte, as a peer would, and by its completion. */
static void writes(int count)
{
	volatile unsigned char *seen = far.buffer + 63;
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
		unsigned char value = i % 255 + 1;
		memset(near.buffer, value, 64);
		CHECK(status(&wr, sge(&near, 0, 64)) == IBV_WC_SUCCESS);
		/* The device may need this CPU. */
		while (*seen != value)
			sched_yield();
	}
}

static void sends(int count)
{
	for (int i = 0; i < count; i++) {
		struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
		struct ibv_sge into = sge(&far, 128, 64);
		receive(&far, i, &into, 1);
		CHECK(status(&wr, sge(&near, 0, 64)) == IBV_WC_SUCCESS);
		struct ibv_wc wc = next(&far);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i);
	}
}

static void post_one(int i)
{
	struct ibv_send_wr wr = remote(IBV_WR_RDMA_WRITE, (uintptr_t)far.buffer, far.mr->rkey);
	struct ibv_sge element = sge(&near, 0, 64), into = sge(&far, 128, 64);
	wr.send_flags = IBV_SEND_SIGNALED;
	if (i % 2) {
		wr.opcode = IBV_WR_SEND;
		receive(&far, i, &into, 1);
	}
	post(&wr, &element, 1);
}

/* A device that stands still has not said that it sleeps, but for the one time that the first post may wake it from. */
static void nobody_looks(pid_t device)
{
	int sent = 0, received = 0;
	stop(device);
	post_one(0);
	forget();
	for (int i = 1; i < DEPTH; i++)
		post_one(i);
	struct ibv_wc wc[DEPTH];
	sent += ibv_poll_cq(near.cq, DEPTH, wc);
	received += ibv_poll_cq(far.cq, DEPTH, wc);
	CHECK(rings == 0 && yields == 0 && looks == 0 && others == 0);
	CHECK(kill(device, SIGCONT) == 0);
	for (; sent < DEPTH; sent++)
		CHECK(next(&near).status == IBV_WC_SUCCESS);
	for (; received < DEPTH / 2; received++)
		CHECK(next(&far).status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	enum { TIMES = 20 };
	sigset_t hang_up;
	int signal;
	CHECK(argc == 4);
	alarm(100);
	sigemptyset(&hang_up);
	sigaddset(&hang_up, SIGHUP);
	CHECK(sigprocmask(SIG_BLOCK, &hang_up, NULL) == 0);
	begin(argv[1]);
	pid_t device = atoi(argv[2]);
	int count = atoi(argv[3]);
	connect_both();
	/* What is done once. */
	writes(10);
	sends(10);
	trap_all();
	/* The trap itself works. */
	CHECK(getppid() > 0 && others == 1 && rings == 0);
	for (int i = 0; i < TIMES; i++)
		nobody_looks(device);
	/* Until it was asked how often the device has slept. */
	printf("ready\n");
	CHECK(sigwait(&hang_up, &signal) == 0);
	forget();
	writes(count);
	sends(count);
	int all[] = { rings, yields, looks, others, last_other };
	printf("rings %d others %d yields %d looks %d last %d\n", all[0], all[3], all[1], all[2], all[4]);
	/* Until it was asked once more. */
	pause();
	return 0;
}

/* A program of verbs for the end-to-end tests: calls that fail by what a process has or is told, and leave nothing.
 *
 *   apart ADDRESS
 *   apart hidden       it may not open its own memory
 *   apart without      whatever it is, it has no device */
#include "itself.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* The kernel gives no descriptor to a process that has as many as it may: the call fails, and the device keeps nothing. */
static void without_descriptors(void)
{
	enum { MORE_THAN_IT_KEEPS = 5000 };
	struct rlimit before, none;
	struct rdma_event_channel *events;
	struct ibv_comp_channel *channel;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none = before;
	int lowest = dup(0);
	CHECK(lowest > 0 && close(lowest) == 0);
	none.rlim_cur = lowest;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
	for (int i = 0; i < MORE_THAN_IT_KEEPS; i++) {
		errno = 0;
		CHECK(rdma_create_event_channel() == NULL && errno == EMFILE);
		errno = 0;
		CHECK(ibv_create_comp_channel(near.id->verbs) == NULL && errno == EMFILE);
	}
	CHECK(ibv_open_device(near.id->verbs->device) == NULL && errno == EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK((events = rdma_create_event_channel()) && (channel = ibv_create_comp_channel(near.id->verbs)));
	rdma_destroy_event_channel(events);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	printf("descriptors\n");
}

static volatile pid_t waits;

static void nothing(int signal)
{
	(void)signal;
}

static void *wait_for_event(void *channel)
{
	struct rdma_cm_event *event;
	waits = syscall(SYS_gettid);
	errno = 0;
	CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == EINTR);
	return NULL;
}

static int sleeps(pid_t thread)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
	FILE *file = fopen(path, "r");
	CHECK(file && fscanf(file, "%*d %*s %c", &state) == 1 && fclose(file) == 0);
	return state == 'S';
}

/* A thread that waits for events of a channel that is destroyed waits on, as in read(2); a signal ends that. */
static void ended_by_a_signal(void)
{
	struct sigaction action = { .sa_handler = nothing };
	struct rdma_event_channel *events;
	pthread_t thread;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && (events = rdma_create_event_channel()));
	CHECK(pthread_create(&thread, NULL, wait_for_event, events) == 0);
	while (!waits || !sleeps(waits))
		usleep(1000);
	rdma_destroy_event_channel(events);
	/* One that comes between two of its calls ends nothing. */
	struct timespec time = { 0 };
	do {
		pthread_kill(thread, SIGUSR1);
		clock_gettime(CLOCK_REALTIME, &time);
		time.tv_nsec += 1000000;
		time.tv_sec += time.tv_nsec / 1000000000;
		time.tv_nsec %= 1000000000;
	} while (pthread_timedjoin_np(thread, NULL, &time) == ETIMEDOUT);
	printf("signal\n");
}

/* There is no device, however often it is looked for, and no descriptor of that is left. */
static int without_device(void)
{
	int lowest = dup(0);
	CHECK(lowest > 0 && close(lowest) == 0);
	for (int i = 0; i < 3; i++) {
		int count = 1;
		struct ibv_device **list = ibv_get_device_list(&count);
		CHECK(list && count == 0 && !list[0]);
		ibv_free_device_list(list);
	}
	CHECK(dup(0) == lowest);
	printf("none\n");
	return 0;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	alarm(100);
	/* The device reads and writes memory that a process hands over, which this one cannot. */
	if (strcmp(argv[1], "hidden") == 0)
		CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	if (strcmp(argv[1], "hidden") == 0 || strcmp(argv[1], "without") == 0)
		return without_device();
	begin(argv[1]);
	connect_both();
	without_descriptors();
	ended_by_a_signal();
	disconnect();
	printf("all\n");
	return 0;
}

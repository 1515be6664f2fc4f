/* A program of verbs, and of sockets, for `wharf bench rdma-wan`. It polls where it waits, and gives way meanwhile.
 *
 *   rdma-wan-peer rounds                                   tells how many rounds of its computation take a millisecond
 *   rdma-wan-peer serve|run verbs|tcp CASE HOST PORT MILLISECONDS BYTES ROUNDS CONNECTIONS CPU
 *
 * A server tells its port first. What a client says and is told is in the files of the cases: latency, progress, cpu,
 * rendezvous_write, rendezvous_read and eager. */
#include "wan.h"

static void serve(const struct asked *asked, int is_verbs)
{
	if (!strcmp(asked->what, "latency"))
		latency_serve(asked, is_verbs);
	else if (!strcmp(asked->what, "progress"))
		progress_serve(asked, is_verbs);
	else if (!strcmp(asked->what, "cpu"))
		cpu_serve(asked, is_verbs);
	else
		rendezvous_serve(asked);
}

static void run(const struct asked *asked, int is_verbs)
{
	if (!strcmp(asked->what, "latency"))
		latency_run(asked, is_verbs);
	else if (!strcmp(asked->what, "progress"))
		progress_run(asked, is_verbs);
	else if (!strcmp(asked->what, "cpu"))
		cpu_run(asked, is_verbs);
	else
		rendezvous_run(asked);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "rounds")) {
		char line[32];
		snprintf(line, sizeof line, "%lu", rounds_per_millisecond());
		say(line);
		return 0;
	}
	CHECK(argc == 11);
	struct asked asked = {
		.what = argv[3], .host = argv[4], .port = argv[5],
		.duration = strtoul(argv[6], NULL, 10) * UINT64_C(1000000),
		.bytes = strtoul(argv[7], NULL, 10),
		.rounds = strtoul(argv[8], NULL, 10),
		.connections = atoi(argv[9]),
		.cpu = atoi(argv[10]),
	};
	CHECK(asked.bytes > 0 && asked.connections <= CLIENTS);
	int is_verbs = !strcmp(argv[2], "verbs");
	(strcmp(argv[1], "serve") ? run : serve)(&asked, is_verbs);
	return 0;
}

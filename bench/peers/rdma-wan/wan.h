/* What the parts of the program share. */
#include <rdma/rdma_cma.h>

#include "../verbs/peer.h"

enum {
	CLIENTS = 64,   /* connections of a program */
	LEAST = 5,      /* operations of a measurement, however short it is */
	UNSIGNALED = 16 /* of so many requests one has a completion */
};

/* What a program is started with. */
struct asked {
	const char *what; /* the case */
	const char *host, *port;
	uint64_t duration; /* nanoseconds that are measured */
	size_t bytes;      /* of a message */
	uint64_t rounds;   /* of the computation; 0 for none */
	int connections;
	int cpu;           /* where the computation of the case cpu runs */
};

/* Dummy work. */
void compute(uint64_t rounds);
/* Rounds of it a millisecond, at best. */
uint64_t rounds_per_millisecond(void);
/* CPU time of this thread, in nanoseconds. */
uint64_t own_cpu(void);
/* This thread runs on one CPU from now on. */
void stay_on(int cpu);
/* Gives way to others of this CPU. */
void yield(void);

/* A connection by verbs. */
struct window { uint64_t addr; uint32_t rkey; };
struct verbs {
	struct ibv_qp *qp;
	struct window peer;   /* the peer's memory */
	uint64_t posted;      /* requests */
};
/* What all connections of a program share. */
extern struct ibv_cq *completions;
extern struct ibv_mr *memory;
extern unsigned char *region;

/* Connections with the peer: of a server, which tells its port, or of a client. Each registers so much memory, and
 * each connection is given an equal part of the peer's. */
void verbs_accept(const struct asked *asked, size_t len, struct verbs *connections);
void verbs_connect(const struct asked *asked, size_t len, struct verbs *connections);
/* Reads or writes the peer's memory from `at` of the own region; a completion comes if it is signaled. */
void post(struct verbs *to, enum ibv_wr_opcode opcode, size_t at, size_t peer_at, size_t len, int is_signaled);
/* Reads or writes elsewhere. */
void post_to(struct verbs *to, enum ibv_wr_opcode opcode, size_t at, struct window there, size_t len, int is_signaled);
void post_receive(struct verbs *to, size_t at, size_t len);
/* The next completion, which is of a success; gives way meanwhile. */
struct ibv_wc next_completion(void);

/* Connections by sockets, which do not block. */
void sockets_accept(const struct asked *asked, int *sockets);
void sockets_connect(const struct asked *asked, int *sockets);
/* All of it; gives way meanwhile. */
void send_all(int socket, const unsigned char *from, size_t len);
/* How much of it could be sent at once. */
size_t send_some(int socket, const unsigned char *from, size_t len);
/* Whether all came; not so at the end of the stream. */
int receive_all(int socket, unsigned char *to, size_t len);

/* The cases, each by verbs and by sockets. */
void latency_serve(const struct asked *asked, int is_verbs);
void latency_run(const struct asked *asked, int is_verbs);
void progress_serve(const struct asked *asked, int is_verbs);
void progress_run(const struct asked *asked, int is_verbs);
void cpu_serve(const struct asked *asked, int is_verbs);
void cpu_run(const struct asked *asked, int is_verbs);
/* By verbs: rendezvous by RDMA write or by RDMA read, or eager copies. */
void rendezvous_serve(const struct asked *asked);
void rendezvous_run(const struct asked *asked);

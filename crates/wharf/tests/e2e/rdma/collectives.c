/* A program of MPI for the end-to-end tests: a ring, and collective operations on up to 1 MB. Each process prints a
 * digest of all that it has received: it depends on nothing but the number of processes. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 50, LEN_MAX = 1 << 18 };

static uint64_t digest = 1469598103934665603u;

static void note(const int *values, int count)
{
	for (int i = 0; i < count; i++)
		digest = (digest ^ (uint32_t)values[i]) * 1099511628211u;
}

int main(int argc, char **argv)
{
	MPI_Comm all = MPI_COMM_WORLD;
	int rank, size, token = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(all, &rank);
	MPI_Comm_size(all, &size);
	int next = (rank + 1) % size, last = (rank + size - 1) % size;
	for (int turn = 0; turn < TURNS; turn++) {
		if (rank != 0)
			MPI_Recv(&token, 1, MPI_INT, last, 0, all, MPI_STATUS_IGNORE);
		token++;
		MPI_Send(&token, 1, MPI_INT, next, 0, all);
		if (rank == 0)
			MPI_Recv(&token, 1, MPI_INT, last, 0, all, MPI_STATUS_IGNORE);
	}
	note(&token, 1);
	for (int len = 1; len <= LEN_MAX; len *= 8) {
		size_t bytes = sizeof(int) * len;
		int *own = malloc(bytes), *result = calloc(len, sizeof(int));
		int *from_all = malloc(bytes * size), *to_all = malloc(bytes * size);
		for (int i = 0; i < len; i++)
			own[i] = i * (rank + 3) + len;
		MPI_Allreduce(own, result, len, MPI_INT, MPI_SUM, all);
		note(result, len);
		MPI_Allgather(own, len, MPI_INT, from_all, len, MPI_INT, all);
		note(from_all, len * size);
		MPI_Alltoall(from_all, len, MPI_INT, to_all, len, MPI_INT, all);
		note(to_all, len * size);
		MPI_Bcast(own, len, MPI_INT, size - 1, all);
		note(own, len);
		MPI_Reduce(own, result, len, MPI_INT, MPI_MAX, 0, all);
		note(result, len);
		MPI_Barrier(all);
		free(own);
		free(result);
		free(from_all);
		free(to_all);
	}
	printf("rank %d of %d: %016llx\n", rank, size, (unsigned long long)digest);
	MPI_Finalize();
	return 0;
}

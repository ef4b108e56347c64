/* MPI: every rank computes for a random time of its own, then all meet in MPI_Allreduce; again, until the time is over.
 *
 * allreduce SECONDS SEED CPU[,CPU...]    rank i stays on the i-th CPU; rank 0 prints one line of JSON at the end.
 */
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_WORK_S 2.0 /* a round takes as long as its slowest rank: the waits of the others are seen at 1 Hz */
#define VALUES 4096

static uint64_t next_random(uint64_t *state) { /* xorshift64*, the same on every machine */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static int bind_to(const char *cpus, int rank) {
    char *copy = strdup(cpus), *place = NULL, *word;
    if (copy == NULL) return -1;
    word = strtok_r(copy, ",", &place);
    for (int i = 0; i < rank && word != NULL; i++) word = strtok_r(NULL, ",", &place);
    int cpu = word == NULL ? -1 : atoi(word);
    free(copy);
    if (cpu < 0) return -1;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    CPU_SET(cpu, &wanted);
    return sched_setaffinity(0, sizeof wanted, &wanted);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4) {
        if (rank == 0) fprintf(stderr, "usage: allreduce SECONDS SEED CPU[,CPU...]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (bind_to(argv[3], rank) != 0) {
        fprintf(stderr, "allreduce: rank %d cannot be bound to its CPU of %s\n", rank, argv[3]);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    const double seconds = atof(argv[1]), began = MPI_Wtime();
    uint64_t state = (strtoull(argv[2], NULL, 10) + 1) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)rank * UINT64_C(0xBF58476D1CE4E5B9);
    if (state == 0) state = 1;
    static double mine[VALUES], all[VALUES];
    long rounds = 0, over_anywhere = 0;
    double worked = 0.0;
    while (!over_anywhere) {
        const double share = (double)(next_random(&state) >> 11) / 9007199254740992.0; /* [0, 1) */
        const double until = MPI_Wtime() + share * LONGEST_WORK_S, limit = began + seconds;
        const double start = MPI_Wtime();
        double now = start;
        while (now < until && now < limit) {
            for (int i = 0; i < VALUES; i++) mine[i] = sin(mine[i] + (double)i * 1e-3) + 1e-9 * now;
            now = MPI_Wtime();
        }
        worked += now - start;
        MPI_Allreduce(mine, all, VALUES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        const long over_here = MPI_Wtime() >= limit;
        MPI_Allreduce(&over_here, &over_anywhere, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD); /* all stop in the same round */
        rounds++;
        memcpy(mine, all, sizeof mine);
    }
    double worked_by_all = 0.0;
    MPI_Reduce(&worked, &worked_by_all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"kind\": \"mpi\", \"seconds\": %.3f, \"ranks\": %d, \"allreduces\": %ld, \"worked_share\": %.3f}\n",
               MPI_Wtime() - began, ranks, rounds, worked_by_all / ((MPI_Wtime() - began) * ranks));
    MPI_Finalize();
    return 0;
}

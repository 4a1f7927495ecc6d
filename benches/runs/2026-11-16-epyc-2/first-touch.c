// How long the first touch of 1 GiB of fresh memory takes, without any I/O.
//
//     cc -O2 -pthread first-touch.c -o first-touch && ./first-touch
//
// Huge or small pages, one or two threads. Before each measurement the same touch is made once and
// its memory freed: "just freed" measures at once, when the kernel still has that memory, "rested"
// 4 seconds later, when it may have given it back to the host of a virtual machine.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 2, REST_SECONDS = 4, PAGE_BYTES = 4096, THREADS_MAX = 2 };
static const size_t BYTES = (size_t)1 << 30;

struct part { volatile char *start; size_t bytes; };

static void *touch_part(void *argument) {
    struct part *part = argument;
    for (size_t i = 0; i < part->bytes; i += PAGE_BYTES) part->start[i] = 1;
    return NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// Seconds to touch every page of new memory, which is freed again.
static double touch(int huge, int threads) {
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) {
        perror("no memory");
        exit(1);
    }
    pthread_t running[THREADS_MAX];
    struct part parts[THREADS_MAX];
    double began = now();
    for (int i = 0; i < threads; i++) {
        parts[i] = (struct part){memory + BYTES / threads * i, BYTES / threads};
        if (pthread_create(&running[i], NULL, touch_part, &parts[i])) exit(1);
    }
    for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
    double seconds = now() - began;
    munmap(memory, BYTES);
    return seconds;
}

int main(void) {
    double load;
    if (getloadavg(&load, 1) == 1) printf("load average when started: %.2f\n", load);
    for (int round = 0; round < ROUNDS; round++)
        for (int rested = 0; rested < 2; rested++)
            for (int huge = 1; huge >= 0; huge--)
                for (int threads = 1; threads <= THREADS_MAX; threads++) {
                    touch(huge, threads);
                    if (rested) sleep(REST_SECONDS);
                    double seconds = touch(huge, threads);
                    printf("%-5s pages, %d thread%s %-10s  %.3f s\n", huge ? "huge" : "small",
                           threads, threads > 1 ? "s," : ", ", rested ? "rested" : "just freed",
                           seconds);
                    fflush(stdout);
                }
}

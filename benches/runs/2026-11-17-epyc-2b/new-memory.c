// How long it takes to read the first GiB of a file into memory that is new to the process.
//
//     cc -O2 -pthread new-memory.c -o new-memory && ./new-memory FILE
//
// Sixteen threads read blocks of 1 MiB around the page cache (O_DIRECT), into huge or small pages:
// straight to where they belong, or each through a block of its own in huge pages, from which it
// copies. Every case has a process of its own, and reads once more into the same memory ("again").
// "after others" comes at once, when the kernel still has memory that other processes have freed;
// "rested" 5 seconds later, when it may have given it back to the host of a virtual machine.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { THREADS = 16, ROUNDS = 3, REST_SECONDS = 5 };
static const size_t BYTES = (size_t)1 << 30, BLOCK = (size_t)1 << 20;

static int file;
static char *memory, *blocks;
static size_t next_block, next_thread;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static char *map(size_t bytes, int huge) {
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || madvise(start, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) fail("no memory");
    return start;
}

// Reads blocks until there are none; through one of its own if `blocks` is there.
static void *read_blocks(void *unused) {
    (void)unused;
    size_t own = __sync_fetch_and_add(&next_thread, 1) % THREADS * BLOCK;
    for (;;) {
        size_t at = __sync_fetch_and_add(&next_block, BLOCK);
        if (at >= BYTES) return NULL;
        char *into = blocks ? blocks + own : memory + at;
        if (!blocks) madvise(into, BLOCK, MADV_POPULATE_WRITE);
        if (pread(file, into, BLOCK, at) != (ssize_t)BLOCK) fail("can't read");
        if (!blocks) continue;
        madvise(memory + at, BLOCK, MADV_POPULATE_WRITE);
        memcpy(memory + at, into, BLOCK);
    }
}

static double read_all(void) {
    pthread_t threads[THREADS];
    next_block = 0;
    double began = now();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, read_blocks, NULL)) fail("no thread");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return now() - began;
}

// One case, in a process of its own.
static void measure(int huge, int through_blocks, int rested) {
    if (rested) sleep(REST_SECONDS);
    pid_t child = fork();
    if (child < 0) fail("no process");
    if (child > 0) {
        waitpid(child, NULL, 0);
        return;
    }
    memory = map(BYTES, huge);
    if (through_blocks) blocks = map(THREADS * BLOCK, 1);
    double first = read_all(), again = read_all();
    printf("%s pages, %-14s %-13s %.3f s, again %.3f s\n", huge ? "huge " : "small",
           through_blocks ? "through blocks" : "straight", rested ? "rested" : "after others", first, again);
    exit(0);
}

int main(int count, char **words) {
    if (count != 2 || (file = open(words[1], O_RDONLY | O_DIRECT)) < 0) fail("a file of at least 1 GiB is wanted");
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int round = 0; round < ROUNDS; round++)
        for (int rested = 0; rested < 2; rested++)
            for (int huge = 1; huge >= 0; huge--)
                for (int through = 0; through < 2; through++) measure(huge, through, rested);
}

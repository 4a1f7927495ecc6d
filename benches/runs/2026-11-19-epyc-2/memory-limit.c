// The memory traffic of an AdamW step over 50 million float32 without its arithmetic: four arrays are read, three
// written, by two threads in portions of 32 Ki elements, in huge pages. What it takes no step can undercut.
// cc -O3 -march=native -pthread memory-limit.c -o memory-limit && ./memory-limit
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { ELEMENTS = 50 << 20, PORTION = 32 << 10, ROUNDS = 31 };
static float *arrays[4];
static atomic_long next;

static float *make(size_t skew) {
    size_t bytes = ELEMENTS * sizeof(float) + (4 << 20);
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    start = (char *)(((size_t)start + (2 << 20) - 1) & ~((size_t)(2 << 20) - 1));
    madvise(start, bytes - (2 << 20), MADV_HUGEPAGE);
    float *array = (float *)(start + skew);
    for (long at = 0; at < ELEMENTS; at++) array[at] = at;
    return array;
}

static void *work(void *unused) {
    for (long from; (from = atomic_fetch_add(&next, PORTION)) < ELEMENTS;) {
        for (long at = from; at < from + PORTION && at < ELEMENTS; at += 16) {
            for (int array = 0; array < 4; array++) _mm_prefetch((char *)(arrays[array] + at + 256), _MM_HINT_T0);
            __m512 p = _mm512_loadu_ps(arrays[0] + at), g = _mm512_loadu_ps(arrays[1] + at);
            __m512 m = _mm512_loadu_ps(arrays[2] + at), v = _mm512_loadu_ps(arrays[3] + at);
            _mm512_storeu_ps(arrays[0] + at, _mm512_add_ps(p, g));
            _mm512_storeu_ps(arrays[2] + at, _mm512_add_ps(m, g));
            _mm512_storeu_ps(arrays[3] + at, _mm512_add_ps(v, g));
        }
    }
    return unused;
}

static int less(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

int main(void) {
    for (int array = 0; array < 4; array++) arrays[array] = make(array * 1088);
    double seconds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec began, ended;
        clock_gettime(CLOCK_MONOTONIC, &began);
        next = 0;
        pthread_t other;
        pthread_create(&other, NULL, work, NULL);
        work(NULL);
        pthread_join(other, NULL);
        clock_gettime(CLOCK_MONOTONIC, &ended);
        seconds[round] = (ended.tv_sec - began.tv_sec) + (ended.tv_nsec - began.tv_nsec) / 1e9;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, less);
    printf("median %.1f ms, least %.1f ms, %.1f GB/s at the median\n", seconds[ROUNDS / 2] * 1e3, seconds[0] * 1e3,
           7.0 * ELEMENTS * sizeof(float) / seconds[ROUNDS / 2] / 1e9);
}

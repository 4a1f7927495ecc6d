// Direct reads of one size into memory in small pages and in a huge one: ./pages FILE BYTES. Medians of 200.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, HUGE_PAGE = 2 << 20 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static int by_value(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(const char *path, size_t bytes, int advice) {
    size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    char *mapping = mmap(NULL, whole + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *memory = mapping + (HUGE_PAGE - (size_t)mapping % HUGE_PAGE) % HUGE_PAGE;
    madvise(memory, whole, advice);
    memset(memory, 7, bytes);
    int file = open(path, O_RDONLY | O_DIRECT);
    double seconds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double began = now();
        if (pread(file, memory, bytes, 0) != (ssize_t)bytes) exit(1);
        seconds[round] = now() - began;
        usleep(200);
    }
    close(file);
    munmap(mapping, whole + HUGE_PAGE);
    qsort(seconds, ROUNDS, sizeof *seconds, by_value);
    return seconds[ROUNDS / 2];
}

int main(int count, char **given) {
    if (count != 3) return 2;
    size_t bytes = strtoul(given[2], NULL, 10);
    char *content = malloc(bytes);
    memset(content, 7, bytes);
    int file = open(given[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(file, content, bytes) != (ssize_t)bytes || fsync(file)) return 1;
    close(file);
    double small = median(given[1], bytes, MADV_NOHUGEPAGE), huge = median(given[1], bytes, MADV_HUGEPAGE);
    printf("%9zu bytes: small pages %.3f ms, a huge page %.3f ms\n", bytes, small * 1e3, huge * 1e3);
    unlink(given[1]);
}

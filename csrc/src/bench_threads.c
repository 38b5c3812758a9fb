/* Threads that begin at once, timed. */
#define _GNU_SOURCE
#include "bench_threads.h"

#include <pthread.h>
#include <time.h>

#include "lora/bench.h"

struct start { /* opens when all threads have come */
    pthread_mutex_t lock;
    pthread_cond_t opened;
    int open; /* 1 go, -1 go home: not all threads could be made */
};

struct thread {
    struct start *start;
    void (*work)(void *part);
    void *part;
};

static void *wait_and_work(void *context) {
    struct thread *thread = context;
    struct start *start = thread->start;
    pthread_mutex_lock(&start->lock);
    while (!start->open) pthread_cond_wait(&start->opened, &start->lock);
    int go = start->open > 0;
    pthread_mutex_unlock(&start->lock);
    if (go) thread->work(thread->part);
    return NULL;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t lora_bench_run(void (*work)(void *part), void *parts, size_t size, uint32_t threads) {
    struct start start = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct thread each[LORA_BENCH_THREADS];
    pthread_t made_as[LORA_BENCH_THREADS];
    uint32_t made = 1;
    for (; made < threads; made++) {
        each[made] = (struct thread){&start, work, (uint8_t *)parts + made * size};
        if (pthread_create(&made_as[made], NULL, wait_and_work, each + made)) break;
    }
    uint64_t began = now();
    pthread_mutex_lock(&start.lock);
    start.open = made == threads ? 1 : -1;
    pthread_cond_broadcast(&start.opened);
    pthread_mutex_unlock(&start.lock);
    if (made == threads) work(parts);
    for (uint32_t i = 1; i < made; i++) pthread_join(made_as[i], NULL);
    return made == threads ? now() - began + 1 : 0;
}

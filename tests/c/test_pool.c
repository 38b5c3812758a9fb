/* The thread pool: every item once, on all threads, from spinning and from sleeping workers, and in
 * the float mode that kernels need. Meant for the thread sanitizer as well. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "lora/float_mode.h"
#include "lora/pool.h"

#define MAX_SIDE 200000

struct tally {
    uint8_t *seen;         /* [items], written without a lock: only one thread may get an item */
    atomic_uint threads;   /* bit a thread that took one */
    atomic_uint wrong;     /* items done under another float mode */
    uint32_t limit, pause; /* threads allowed; nanoseconds an item takes */
};

static void rest(uint32_t nanoseconds) {
    struct timespec time = {0, (long)nanoseconds};
    if (nanoseconds) nanosleep(&time, NULL);
}

static void take(void *context, uint32_t item, uint32_t thread) {
    struct tally *tally = context;
    CHECK(thread < tally->limit);
    tally->seen[item]++;
    atomic_fetch_or(&tally->threads, 1u << thread);
    volatile float small = 0x1p-140f;
    if (small * 0.5f != 0x1p-141f) atomic_fetch_add(&tally->wrong, 1);
    rest(tally->pause);
}

static uint32_t run(struct lora_pool *pool, uint32_t items, uint32_t pause) {
    struct tally tally = {
        .seen = calloc(items + 1, 1), .limit = lora_pool_threads(pool), .pause = pause};
    CHECK(tally.seen);
    lora_pool_run(pool, items, take, &tally);
    for (uint32_t i = 0; i < items; i++) CHECK(tally.seen[i] == 1);
    CHECK(tally.seen[items] == 0);
    CHECK(atomic_load(&tally.wrong) == 0);
    free(tally.seen);
    return atomic_load(&tally.threads);
}

/* Where other programs hold the CPUs, a thread may miss a run, but not run after run. */
static bool all_take_part(struct lora_pool *pool, uint32_t threads) {
    for (uint32_t attempt = 0; attempt < 100; attempt++)
        if (run(pool, 4 * threads, 1000000) == (1u << threads) - 1) return true;
    return false;
}

static void test_threads(uint32_t threads) {
    struct lora_pool *pool = lora_pool_create(threads);
    CHECK(pool && lora_pool_threads(pool) == threads);
    CHECK(run(pool, 0, 0) == 0);
    CHECK(run(pool, 1, 0) == 1);
    CHECK(all_take_part(pool, threads));
    for (uint32_t round = 0; round < 2000; round++) run(pool, round % 37, 0);
    for (uint32_t round = 0; round < 20; round++) {
        rest(200000); /* long enough to fall asleep */
        CHECK(all_take_part(pool, threads));
    }
    run(pool, MAX_SIDE, 0); /* more than one ticket holds */
    lora_pool_free(pool);
}

#define NESTED 24

struct nest {
    struct lora_pool *pool;
    atomic_uint done[NESTED], within;
};

static void take_within(void *context, uint32_t item, uint32_t thread) {
    struct nest *nest = context;
    CHECK(item < NESTED && thread == 0); /* alone, whatever the thread: no other takes part */
    atomic_fetch_add(&nest->within, 1);
}

static void take_nest(void *context, uint32_t item, uint32_t thread) {
    struct nest *nest = context;
    (void)thread;
    lora_pool_run(nest->pool, NESTED, take_within, nest);
    atomic_fetch_add(&nest->done[item], 1);
}

static void test_run_within_an_item(void) {
    struct nest nest = {.pool = lora_pool_create(3)};
    for (uint32_t round = 0; round < 200; round++)
        lora_pool_run(nest.pool, NESTED, take_nest, &nest);
    for (uint32_t i = 0; i < NESTED; i++) CHECK(atomic_load(&nest.done[i]) == 200);
    CHECK(atomic_load(&nest.within) == 200 * NESTED * NESTED);
    CHECK(run(nest.pool, 100, 0)); /* and the pool is as it was */
    lora_pool_free(nest.pool);
}

#define SPARE_CALLS 1000

struct spare {                  /* freed by the pool */
    atomic_uint calls, threads; /* bit a thread that called */
};

static bool pass(void *context, uint32_t thread) {
    struct spare *spare = context;
    CHECK(thread < 2);
    atomic_fetch_or(&spare->threads, 1u << thread);
    return atomic_fetch_add(&spare->calls, 1) < SPARE_CALLS;
}

/* Who waits, for work or for the others to end theirs, passes the time with the spare task, and
 * takes the next run's items all the same. */
static void test_spare(void) {
    struct lora_pool *pool = lora_pool_create(2);
    struct spare *spare = calloc(1, sizeof *spare);
    CHECK(pool && spare && !lora_pool_idle_context(pool));
    run(pool, 8, 0); /* the worker runs before there is anything to do meanwhile */
    lora_pool_set_idle(pool, pass, spare);
    CHECK(lora_pool_idle_context(pool) == spare);
    for (uint32_t round = 0; round < 2000 && atomic_load(&spare->threads) != 3; round++)
        run(pool, 3, 200000); /* an odd number: one thread waits for the other */
    CHECK(atomic_load(&spare->threads) == 3);
    CHECK(all_take_part(pool, 2));
    lora_pool_free(pool);
}

int main(void) {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8000); /* the workers may not inherit this thread's mode */
    struct lora_pool *pool = lora_pool_create(2);
    struct tally tally = {.seen = calloc(64, 1), .limit = 2, .pause = 1000000};
    lora_pool_run(pool, 64, take, &tally);
    CHECK(atomic_load(&tally.wrong) < 64 && atomic_load(&tally.threads) == 3);
    free(tally.seen);
    lora_pool_free(pool);
    _mm_setcsr(_mm_getcsr() & ~0x8000u);
#endif
    CHECK(lora_pool_threads(NULL) == 1);
    CHECK(run(NULL, 100, 0) == 1);
    for (uint32_t threads = 1; threads <= 4; threads++) test_threads(threads);
    test_spare();
    lora_pool_free(lora_pool_create(4)); /* never used: no thread to join */
    lora_pool_free(NULL);
    test_run_within_an_item();
    puts("pool: ok");
    return 0;
}

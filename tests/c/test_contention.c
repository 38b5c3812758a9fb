/* Workers that take part: fewer while threads lose their CPUs, all again afterwards; and a caller
 * that sleeps until a late worker is done. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "check.h"
#include "lora/pool.h"
#include "schedule/contention.h"

#define MS 1000000u
#define LONG 5000u /* ms */

static void rest_ms(long milliseconds) {
    struct timespec time = {0, milliseconds * (long)MS};
    nanosleep(&time, NULL);
}

static uint64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The decision of a look, which some runs make. */
static bool decide(struct contention *contention) {
    bool more = false;
    for (uint32_t run = 0; run < 8; run++) more |= contention_decide(contention);
    return more;
}

static void lose(struct contention *contention, uint64_t milliseconds) {
    atomic_fetch_add(&contention->lost_ns, milliseconds * MS);
}

/* Until one more worker takes part. */
static void waits(struct contention *contention) {
    while (!decide(contention)) rest_ms(1);
}

static void test_decisions(void) {
    struct contention contention;
    contention_init(&contention);
    contention_start(&contention, 2);
    CHECK(!decide(&contention) && contention_active(&contention) == 2);
    lose(&contention, 4); /* of 50 */
    CHECK(!decide(&contention) && contention_active(&contention) == 2);
    lose(&contention, LONG); /* also where this test loses its CPU meanwhile */
    CHECK(!decide(&contention) && contention_active(&contention) == 1);
    lose(&contention, LONG);
    CHECK(!decide(&contention) && contention_active(&contention) == 0);
    lose(&contention, 200); /* of the caller alone: nobody waits for it */
    CHECK(!decide(&contention) && contention_active(&contention) == 0);
    waits(&contention);
    CHECK(contention_active(&contention) == 1);
    uint64_t pause = contention.pause_ns;
    contention.trial += LONG * MS; /* not to end before it has failed */
    lose(&contention, 3);          /* on trial this is too much, and the next one is later */
    CHECK(!decide(&contention) && contention_active(&contention) == 0);
    CHECK(contention.pause_ns == 2 * pause);
    waits(&contention);
    rest_ms(60); /* the trial ends */
    waits(&contention);
    CHECK(contention_active(&contention) == 2);
    rest_ms(60);
    CHECK(!decide(&contention) && contention_active(&contention) == 2);
}

/* The first item is the caller's own, which leaves a worker the time to begin the other one. */
static void late(void *context, uint32_t item, uint32_t thread) {
    (void)context;
    (void)item;
    rest_ms(thread ? 40 : 15);
}

/* Each wait in a pool of its own: in an older one no worker takes part beside other load. */
static void test_a_caller_that_waits_long_sleeps(void) {
    uint64_t spent = 0, rounds = 8;
    for (uint64_t round = 0; round < rounds; round++) {
        struct lora_pool *pool = lora_pool_create(2);
        lora_pool_run(pool, 2, late, NULL); /* starts the worker */
        uint64_t before = cpu_ns();
        lora_pool_run(pool, 2, late, NULL);
        spent += cpu_ns() - before;
        lora_pool_free(pool);
    }
    CHECK(spent < rounds * 2 * MS);
}

int main(void) {
    test_decisions();
    test_a_caller_that_waits_long_sleeps();
    puts("contention: ok");
    return 0;
}

/* A wait ends in time on the boards' clock: this computer's where polls take long, the boards' own
 * where only sleep moves it. */
#define _POSIX_C_SOURCE 200809L
#include <assert.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"

#define TIMEOUT_US 40000
#define SLOW_US 5000

static uint64_t slept_us;

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int never_done(void *handle, uint32_t *run_state, struct lora_failure *failure) {
    const struct timespec pause = {0, *(const uint32_t *)handle * 1000};
    (void)failure;
    nanosleep(&pause, NULL);
    *run_state = LORA_RUN_BUSY;
    return LORA_OK;
}

static int count_sleep(void *handle, uint32_t microseconds, struct lora_failure *failure) {
    (void)handle;
    (void)failure;
    slept_us += microseconds;
    return LORA_OK;
}

static int read_nothing(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                        struct lora_failure *failure) {
    (void)handle;
    (void)block;
    (void)offset;
    (void)failure;
    *value = 0;
    return LORA_OK;
}

/* How long lora_wait takes of this computer's time until it tells the hang. */
static uint64_t hang_us(uint32_t real_time, uint32_t poll_takes_us) {
    const struct lora_transport transport = {.size = sizeof transport,
                                             .scheme = "test",
                                             .real_time = real_time,
                                             .poll = never_done,
                                             .register_read = read_nothing,
                                             .sleep = count_sleep};
    struct lora_failure failure;
    struct lora_cluster *cluster = calloc(1, sizeof *cluster);
    assert(cluster);
    cluster->count = 1;
    lora_timeouts_default(&cluster->timeouts);
    cluster->boards[0].transport = &transport;
    cluster->boards[0].handle = &poll_takes_us;
    slept_us = 0;
    uint64_t began = now_us();
    int status = lora_wait(cluster, 1, TIMEOUT_US, lora_failure_begin(&failure, NULL));
    uint64_t took = now_us() - began;
    assert(status == LORA_ERR_TIMEOUT && cluster->hung);
    free(cluster);
    return took;
}

/* Says busy, and is done while this process does nothing for longer than the limit. */
static int done_meanwhile(void *handle, uint32_t *run_state, struct lora_failure *failure) {
    uint32_t *polls = handle;
    const struct timespec stop = {0, 2 * TIMEOUT_US * 1000};
    (void)failure;
    *run_state = (*polls)++ ? LORA_RUN_DONE : LORA_RUN_BUSY;
    if (*run_state == LORA_RUN_BUSY) nanosleep(&stop, NULL);
    return LORA_OK;
}

static void test_a_process_that_was_stopped(void) {
    const struct lora_transport transport = {.size = sizeof transport,
                                             .scheme = "test",
                                             .real_time = 1,
                                             .poll = done_meanwhile,
                                             .register_read = read_nothing,
                                             .sleep = count_sleep};
    struct lora_failure failure;
    uint32_t polls = 0;
    struct lora_cluster *cluster = calloc(1, sizeof *cluster);
    assert(cluster);
    cluster->count = 1;
    lora_timeouts_default(&cluster->timeouts);
    cluster->boards[0].transport = &transport;
    cluster->boards[0].handle = &polls;
    assert(!lora_wait(cluster, 1, TIMEOUT_US, lora_failure_begin(&failure, NULL)));
    assert(polls == 2 && !cluster->hung);
    free(cluster);
}

int main(void) {
    test_a_process_that_was_stopped();
    uint64_t took = hang_us(1, SLOW_US);
    assert(took >= TIMEOUT_US && took < 4 * TIMEOUT_US); /* 2000 polls of 20 us would be 10 s */
    assert(slept_us < TIMEOUT_US);
    hang_us(0, 0);
    assert(slept_us >= TIMEOUT_US && slept_us < TIMEOUT_US + 1000);
    return 0;
}

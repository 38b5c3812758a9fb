/* Several host threads, each with a board of one cluster, and the registry under them: for the
 * thread sanitizer, and for locks that would never be given back. */
#include <pthread.h>

#include "emu_board.h"

#define BOARDS 4
#define ROUNDS 50

struct job {
    struct test_cluster *cluster;
    uint32_t board;
};

static void identify(struct job *job, uint32_t step) {
    void *handle = job->cluster->handle[job->board];
    uint32_t state = LORA_RUN_BUSY, arguments[11] = {LORA_OP_IDENTIFY, step};
    struct lora_completion record;
    test_arguments(arguments, TEST_DDR);
    CHECK(transport->submit(handle, arguments, NULL) == LORA_OK);
    while (state == LORA_RUN_BUSY) {
        CHECK(transport->poll(handle, &state, NULL) == LORA_OK);
        CHECK(transport->sleep(handle, 1, NULL) == LORA_OK);
    }
    CHECK(transport->memory_read(handle, TEST_DDR, 0, &record, sizeof record, NULL) == LORA_OK);
    CHECK(record.list_id == step);
}

static void *work(void *argument) {
    struct job *job = argument;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        identify(job, job->board * 1000 + round);
        CHECK(lora_emu_fault(job->cluster->id, job->board, LORA_FAULT_NONE, 0, 0, 0) == LORA_OK);
        struct test_cluster other = test_open(1, TEST_PATH, 2);
        test_close(&other);
    }
    return NULL;
}

int main(void) {
    struct test_cluster cluster = test_open(BOARDS, TEST_RING, 0);
    pthread_t threads[BOARDS];
    struct job jobs[BOARDS];
    test_links_up(&cluster);
    for (uint32_t b = 0; b < BOARDS; b++) {
        test_reserve(&cluster, b, TEST_DDR, 0, 1 << 16);
        test_arena(&cluster, b, 0, TEST_DDR, 0, 1 << 16);
        jobs[b] = (struct job){&cluster, b};
        CHECK(pthread_create(&threads[b], NULL, work, &jobs[b]) == 0);
    }
    for (uint32_t b = 0; b < BOARDS; b++) CHECK(pthread_join(threads[b], NULL) == 0);
    test_close(&cluster);
    puts("emu_threads: ok");
    return 0;
}

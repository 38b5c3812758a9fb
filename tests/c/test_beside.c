/* Writes to memory beside runs: K and V of a prompt come into pages that no step reads while steps
 * run. For the thread sanitizer; that such a write does not wait for the run; and that it ends
 * where the board has left the bus. */
#include <pthread.h>
#include <stdatomic.h>

#include "emu_board.h"

#define BOARDS 2
#define WRITERS 2
#define ROUNDS 40
#define PAGES 64
#define PAGE_BYTES (40u << 10) /* past the caches, and through them: see stream_copy */
#define CONTROL_BYTES (1u << 16)
#define BANK 3

struct writer {
    struct test_cluster *cluster;
    uint32_t number;
    atomic_uint *refused;
};

static uint64_t page_at(uint32_t writer, uint32_t page) {
    return (uint64_t)(page * WRITERS + writer) * PAGE_BYTES;
}

static uint8_t byte_of(uint32_t writer, uint32_t board, uint32_t page) {
    return (uint8_t)(1 + writer * 100 + board * 50 + page % 41);
}

/* Fills its pages of every board; counts what a board refuses. */
static void *fill(void *argument) {
    struct writer *own = argument;
    static _Thread_local uint8_t data[PAGE_BYTES];
    for (uint32_t page = 0; page < PAGES; page++)
        for (uint32_t b = 0; b < BOARDS; b++) {
            struct lora_failure failure;
            uint32_t bytes = page % 2 ? PAGE_BYTES : 512;
            memset(data, byte_of(own->number, b, page), bytes);
            int status = transport->memory_write(own->cluster->handle[b], BANK,
                                                 page_at(own->number, page), data, bytes, &failure);
            if (!status) continue;
            CHECK(status == LORA_ERR_TRANSPORT && strstr(failure.message, "left the bus"));
            atomic_fetch_add(own->refused, 1);
        }
    return NULL;
}

static void begin(pthread_t threads[WRITERS], struct writer writers[WRITERS],
                  struct test_cluster *cluster, atomic_uint *refused) {
    for (uint32_t w = 0; w < WRITERS; w++) {
        writers[w] = (struct writer){cluster, w, refused};
        CHECK(pthread_create(&threads[w], NULL, fill, &writers[w]) == 0);
    }
}

static struct test_cluster open_cluster(const struct lora_kernels *kernels) {
    struct test_cluster cluster = test_open_with(BOARDS, TEST_RING, 0, kernels, 1);
    for (uint32_t b = 0; b < BOARDS; b++) {
        test_reserve(&cluster, b, TEST_DDR, 0, CONTROL_BYTES);
        test_arena(&cluster, b, 0, TEST_DDR, 0, CONTROL_BYTES);
        test_reserve(&cluster, b, BANK, 0, (uint64_t)PAGES * WRITERS * PAGE_BYTES);
    }
    return cluster;
}

static void identify(struct test_cluster *cluster, uint32_t board, uint32_t number) {
    uint32_t state = LORA_RUN_BUSY, arguments[11] = {LORA_OP_IDENTIFY, number};
    void *handle = cluster->handle[board];
    struct lora_completion record;
    test_arguments(arguments, TEST_DDR);
    CHECK(transport->submit(handle, arguments, NULL) == LORA_OK);
    while (state == LORA_RUN_BUSY) {
        CHECK(transport->poll(handle, &state, NULL) == LORA_OK);
        CHECK(transport->sleep(handle, 1, NULL) == LORA_OK);
    }
    CHECK(transport->memory_read(handle, TEST_DDR, 0, &record, sizeof record, NULL) == LORA_OK);
    CHECK(record.list_id == number);
}

static void check_page(struct test_cluster *cluster, uint32_t writer, uint32_t board,
                       uint32_t page) {
    static uint8_t found[PAGE_BYTES];
    uint32_t bytes = page % 2 ? PAGE_BYTES : 512;
    CHECK(transport->memory_read(cluster->handle[board], BANK, page_at(writer, page), found, bytes,
                                 NULL) == LORA_OK);
    for (uint32_t i = 0; i < bytes; i++) CHECK(found[i] == byte_of(writer, board, page));
}

static void test_runs_and_writes(void) {
    struct test_cluster cluster = open_cluster(&test_kernels);
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    atomic_uint refused = 0;
    begin(threads, writers, &cluster, &refused);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t b = 0; b < BOARDS; b++) identify(&cluster, b, b * 1000 + round);
    for (uint32_t w = 0; w < WRITERS; w++) CHECK(pthread_join(threads[w], NULL) == 0);
    CHECK(refused == 0);
    for (uint32_t w = 0; w < WRITERS; w++)
        for (uint32_t b = 0; b < BOARDS; b++)
            for (uint32_t page = 0; page < PAGES; page++) check_page(&cluster, w, b, page);
    test_close(&cluster);
}

/* While all of its lock is a run's, which ends only after the writes. */
static void test_a_write_does_not_wait_for_a_run(void) {
    struct test_cluster cluster = open_cluster(&test_kernels);
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    atomic_uint refused = 0;
    struct emu_cluster *held = emu_cluster_acquire(cluster.id);
    begin(threads, writers, &cluster, &refused);
    for (uint32_t w = 0; w < WRITERS; w++) CHECK(pthread_join(threads[w], NULL) == 0);
    emu_cluster_release(held);
    CHECK(refused == 0);
    check_page(&cluster, 1, 1, PAGES - 1);
    test_close(&cluster);
}

static void test_a_board_leaves_the_bus_meanwhile(void) {
    struct test_cluster cluster = open_cluster(&test_kernels);
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    atomic_uint refused = 0;
    begin(threads, writers, &cluster, &refused);
    CHECK(lora_emu_fault(cluster.id, 1, LORA_FAULT_BOARD_LOST, 0, 0, 0) == LORA_OK);
    for (uint32_t w = 0; w < WRITERS; w++) CHECK(pthread_join(threads[w], NULL) == 0);
    CHECK(refused <= PAGES * WRITERS); /* of that board alone */
    refused = 0;
    begin(threads, writers, &cluster, &refused);
    for (uint32_t w = 0; w < WRITERS; w++) CHECK(pthread_join(threads[w], NULL) == 0);
    CHECK(refused == PAGES * WRITERS);
    test_close(&cluster);
}

int main(void) {
    test_runs_and_writes();
    test_a_write_does_not_wait_for_a_run();
    test_a_board_leaves_the_bus_meanwhile();
    puts("beside: ok");
    return 0;
}

/* What idle threads fetch: the blocks that the next matmul starts with, once the order of a step is
 * known, found anew when the order changes. Results are the same with it; also for the thread
 * sanitizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "schedule/prefetch.h"
#include "lora/abi.h"
#include "lora/kernels.h"
#include "lora/native.h"
#include "lora/pool.h"

enum { BANKS = 4, MATMULS = 3, THREADS = 2, K_BLOCKS = 2, N = 70, X_BYTES = 512, Y_BYTES = 192 };
#define BANK_BYTES (8ull * LORA_BLOCK_BYTES_FP16)

struct board {
    struct lora_list list;
    struct lora_step_state state;
    uint8_t *banks[LORA_BANK_ONCHIP + 1];
    uint64_t bytes[LORA_BANK_ONCHIP + 1];
    struct lora_matrix matmuls[MATMULS];
};

static void fill(struct board *board, uint32_t bank, uint64_t bytes) {
    board->banks[bank] = aligned_alloc(64, bytes);
    board->bytes[bank] = bytes;
    CHECK(board->banks[bank]);
    for (uint64_t i = 0; i < bytes / 2; i++) /* small FP16 numbers */
        ((uint16_t *)(void *)board->banks[bank])[i] = (uint16_t)(0x2800 + (i * 7919 & 0x3ff));
}

/* Products of 256 x 70, six blocks each, one behind the other over four banks. */
static void make(struct board *board) {
    memset(board, 0, sizeof *board);
    board->state.row_count = 1;
    for (uint32_t bank = 0; bank < BANKS; bank++) fill(board, bank, BANK_BYTES);
    fill(board, LORA_BANK_ONCHIP, X_BYTES + MATMULS * Y_BYTES);
    for (uint32_t i = 0; i < MATMULS; i++)
        board->matmuls[i] = (struct lora_matrix){.opcode = LORA_CMD_MATRIX,
                                                 .bank_count = BANKS,
                                                 .merge = 1,
                                                 .weight_type = LORA_WEIGHT_FP16,
                                                 .first = (uint16_t)(6 * i),
                                                 .k = 256,
                                                 .n = N,
                                                 .x_bank = LORA_BANK_ONCHIP,
                                                 .y_bank = LORA_BANK_ONCHIP,
                                                 .x_stride = X_BYTES,
                                                 .y_offset = X_BYTES + i * Y_BYTES,
                                                 .y_stride = Y_BYTES,
                                                 .bias_bank = LORA_NO_BANK,
                                                 .y_type = LORA_FP16};
}

static struct lora_unit_call call_of(const struct board *board, uint32_t matmul) {
    return (struct lora_unit_call){.size = sizeof(struct lora_unit_call),
                                   .command = (const void *)&board->matmuls[matmul],
                                   .list = &board->list,
                                   .state = &board->state,
                                   .banks = board->banks,
                                   .bank_bytes = board->bytes};
}

static void run(struct board *board, struct lora_pool *pool, uint32_t matmul) {
    struct lora_unit_call call = call_of(board, matmul);
    int status = -1;
    lora_kernels_native.batch(NULL, pool, &call, &status, 1);
    CHECK(status == LORA_OK);
}

/* Block j of a matmul by the rule of placement: merge 1, from weight line 0. */
static const uint8_t *block(const struct board *board, uint32_t matmul, uint32_t j) {
    uint32_t request = board->matmuls[matmul].first + j;
    return board->banks[request % BANKS] + request / BANKS * (uint64_t)LORA_BLOCK_BYTES_FP16;
}

/* Short matmuls are an item a thread; tiles 0 and 2 are stored in the same banks, so come first. */
static void expect_next(const struct board *board, struct lora_pool *pool, uint32_t matmul) {
    static const uint32_t tiles[THREADS][3] = {{0, ~0u, ~0u}, {2, 1, ~0u}};
    for (uint32_t thread = 0; thread < THREADS; thread++)
        for (uint32_t i = 0; i < 3 * K_BLOCKS; i++) {
            uint32_t tile = tiles[thread][i / K_BLOCKS];
            const void *found = lora_prefetch_block(pool, thread, i);
            if (tile == ~0u) CHECK(found == NULL);
            else CHECK(found == block(board, matmul, tile * K_BLOCKS + i % K_BLOCKS));
        }
}

static void test_order(struct board *board, struct lora_pool *pool) {
    CHECK(lora_prefetch_block(pool, 0, 0) == NULL);
    for (uint32_t i = 0; i < MATMULS; i++) {
        run(board, pool, i);
        CHECK(lora_prefetch_block(pool, 0, 0) == NULL); /* what follows was never seen */
    }
    for (uint32_t step = 0; step < 3; step++)
        for (uint32_t i = 0; i < MATMULS; i++) {
            run(board, pool, i);
            expect_next(board, pool, (i + 1) % MATMULS);
        }
    run(board, pool, 0); /* another order: 0, 2, 0, 2, .. */
    run(board, pool, 2);
    run(board, pool, 0);
    expect_next(board, pool, 2);
    run(board, pool, 2);
    expect_next(board, pool, 0);
}

struct beside {
    struct board *boards;
    struct lora_pool *pool;
};

/* A board an item: whichever thread takes it knows the order after the first step. */
static void run_beside(void *context, uint32_t item, uint32_t thread) {
    const struct beside *beside = context;
    struct board *board = &beside->boards[item];
    for (uint32_t step = 0; step < 3; step++)
        for (uint32_t i = 0; i < MATMULS; i++) {
            struct lora_unit_call call = call_of(board, i);
            CHECK(lora_kernels_native.matrix(NULL, &call) == LORA_OK);
            const void *first = lora_prefetch_own_block(beside->pool, thread, 0);
            const void *third = lora_prefetch_own_block(beside->pool, thread, K_BLOCKS);
            uint32_t next = (i + 1) % MATMULS;
            if (step == 0) continue;
            CHECK(first == block(board, next, 0));
            CHECK(third == block(board, next, 2 * K_BLOCKS)); /* tile 2: of the same banks */
        }
}

static void test_beside(struct board *boards, struct lora_pool *pool) {
    struct beside beside = {boards, pool};
    uint8_t alone[THREADS][MATMULS * Y_BYTES];
    for (uint32_t i = 0; i < THREADS; i++) {
        memset(boards[i].banks[LORA_BANK_ONCHIP] + X_BYTES, 0, sizeof alone[i]);
        for (uint32_t m = 0; m < MATMULS; m++) run(&boards[i], NULL, m);
        memcpy(alone[i], boards[i].banks[LORA_BANK_ONCHIP] + X_BYTES, sizeof alone[i]);
    }
    for (uint32_t step = 0; step < 500; step++) {
        for (uint32_t i = 0; i < THREADS; i++)
            memset(boards[i].banks[LORA_BANK_ONCHIP] + X_BYTES, 0, sizeof alone[i]);
        lora_pool_run(pool, THREADS, run_beside, &beside);
        for (uint32_t i = 0; i < THREADS; i++)
            CHECK(memcmp(alone[i], boards[i].banks[LORA_BANK_ONCHIP] + X_BYTES, sizeof alone[i]) ==
                  0);
    }
}

static void test_results(struct board *board, struct lora_pool *pool) {
    uint8_t alone[MATMULS * Y_BYTES], *found = board->banks[LORA_BANK_ONCHIP] + X_BYTES;
    memset(found, 0, sizeof alone);
    for (uint32_t i = 0; i < MATMULS; i++) run(board, NULL, i);
    memcpy(alone, found, sizeof alone);
    for (uint32_t step = 0; step < 2000; step++) {
        memset(found, 0, sizeof alone);
        for (uint32_t i = 0; i < MATMULS; i++) run(board, pool, (i + step / 100) % MATMULS);
        CHECK(memcmp(alone, found, sizeof alone) == 0);
    }
}

/* More batches than are kept: learning begins anew. */
static void test_many(struct board *board, struct lora_pool *pool) {
    for (uint32_t i = 0; i < 3000; i++) {
        board->matmuls[0].weight_line = 64 * (i % 2);
        board->matmuls[0].n = 1 + i % 61;
        board->matmuls[0].k = 128 + i / 61;
        run(board, pool, 0);
    }
}

int main(void) {
    struct board boards[THREADS], *board = boards;
    struct lora_pool *pool = lora_pool_create(THREADS);
    CHECK(pool);
    for (uint32_t i = 0; i < THREADS; i++) make(&boards[i]);
    test_order(board, pool);
    test_results(board, pool);
    test_beside(boards, pool);
    test_many(board, pool);
    lora_pool_free(pool);
    for (uint32_t i = 0; i < THREADS; i++)
        for (uint32_t bank = 0; bank <= LORA_BANK_ONCHIP; bank++) free(boards[i].banks[bank]);
    puts("prefetch: ok");
    return 0;
}

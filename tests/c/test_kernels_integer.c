/* Integer kernels on memory that ends where their operands end, every variant and on two threads:
 * nothing beyond is read, and each gives the bytes that plain C gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "lora/abi.h"
#include "lora/kernels.h"
#include "lora/native.h"
#include "lora/pool.h"

enum { WEIGHTS, SCALES, KEYS, TABLE, BANKS };

struct board {
    struct lora_list list;
    struct lora_step_state state;
    uint8_t *banks[LORA_BANK_ONCHIP + 1];
    uint64_t bytes[LORA_BANK_ONCHIP + 1];
    struct lora_pool *pool;
    int largest; /* operands are those of the largest products */
};

static uint32_t random_word(void) {
    static uint32_t state = 9;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* A bank of exactly so many random bytes. */
static void bank_new(struct board *board, uint32_t bank, uint64_t bytes) {
    free(board->banks[bank]);
    board->banks[bank] = aligned_alloc(64, (bytes + 63) / 64 * 64);
    CHECK(board->banks[bank]);
    board->bytes[bank] = bytes;
    for (uint64_t i = 0; i < bytes; i++) board->banks[bank][i] = (uint8_t)random_word();
}

static void board_free(struct board *board) {
    for (uint32_t bank = 0; bank <= LORA_BANK_ONCHIP; bank++) free(board->banks[bank]);
}

/* Runs a command, by itself and on the pool, and keeps what the on-chip memory holds then. */
static uint8_t *run(struct board *board, const void *command, const uint8_t *before) {
    uint64_t bytes = board->bytes[LORA_BANK_ONCHIP];
    uint8_t *alone = malloc(bytes);
    CHECK(alone);
    for (int shared = 0; shared < 2; shared++) {
        struct lora_unit_call call = {.size = sizeof call,
                                      .command = command,
                                      .list = &board->list,
                                      .state = &board->state,
                                      .banks = board->banks,
                                      .bank_bytes = board->bytes};
        int status = -1;
        memcpy(board->banks[LORA_BANK_ONCHIP], before, bytes);
        lora_kernels_native.batch(NULL, shared ? board->pool : NULL, &call, &status, 1);
        CHECK(status == LORA_OK);
        if (!shared) memcpy(alone, board->banks[LORA_BANK_ONCHIP], bytes);
    }
    CHECK(memcmp(alone, board->banks[LORA_BANK_ONCHIP], bytes) == 0);
    return alone;
}

/* Every variant that the machine has against the first, plain C. */
static void compare(struct board *board, const void *command) {
    uint64_t bytes = board->bytes[LORA_BANK_ONCHIP];
    uint8_t *before = malloc(bytes), *wanted = NULL;
    CHECK(before);
    memcpy(before, board->banks[LORA_BANK_ONCHIP], bytes);
    for (uint32_t i = 0; lora_native_variant(i); i++) {
        if (!lora_native_supported(i)) continue;
        CHECK(lora_native_force(lora_native_variant(i)) == 0);
        uint8_t *found = run(board, command, before);
        if (wanted) CHECK(memcmp(found, wanted, bytes) == 0);
        if (wanted) free(found);
        else wanted = found;
    }
    free(before);
    free(wanted);
}

static uint32_t block_bytes(uint32_t type) {
    static const uint32_t of_group[] = {LORA_BLOCK_BYTES_INT4_32, LORA_BLOCK_BYTES_INT4_64,
                                        LORA_BLOCK_BYTES_INT4_128};
    return type == LORA_WEIGHT_INT8 ? LORA_BLOCK_BYTES_INT8
                                    : of_group[(type >> LORA_WEIGHT_GROUP_SHIFT) - 5];
}

/* Every product is 15*-128, or -128*-128: sums that are kept in too few bits overflow. */
static void fill_largest(struct board *board, uint32_t type, uint32_t x_bytes) {
    static const float scale = 0x1p-12f;
    const uint16_t of_group = 0x1400; /* 2^-10 */
    int nibbles = type != LORA_WEIGHT_INT8;
    uint32_t size = block_bytes(type), values = nibbles ? LORA_BLOCK_BYTES_INT4 : size;
    uint32_t scales = nibbles ? (128u >> (type >> LORA_WEIGHT_GROUP_SHIFT)) * 32 * 2 : 0;
    memset(board->banks[LORA_BANK_ONCHIP], 0x80, x_bytes);
    for (uint64_t at = 0; at < board->bytes[WEIGHTS]; at += size) {
        memset(board->banks[WEIGHTS] + at, 0, size);
        memset(board->banks[WEIGHTS] + at, nibbles ? 0xff : 0x80, values);
        for (uint32_t i = 0; i < scales; i += 2)
            memcpy(board->banks[WEIGHTS] + at + values + i, &of_group, 2);
    }
    memset(board->banks[SCALES], 0, board->bytes[SCALES]);
    for (uint64_t i = 0; i + 4 <= board->bytes[SCALES] / 6 * 4; i += 4)
        memcpy(board->banks[SCALES] + i, &scale, 4);
}

static void check_matrix(struct board *board, uint32_t type, uint32_t k, uint32_t n, uint32_t rows,
                         uint16_t flags) {
    uint32_t width = (type & LORA_WEIGHT_TYPE_MASK) == LORA_WEIGHT_W4A16 ? 2 : 1;
    uint32_t stride = flags & LORA_FLAG_ROW_SCALES ? (k + 63) / 64 * 64 + 64 : k * width;
    uint32_t blocks = (k + 127) / 128 * ((n + 31) / 32), x = rows * stride;
    uint32_t y_offset = (x + 63) / 64 * 64;
    struct lora_matrix command = {.opcode = LORA_CMD_MATRIX,
                                  .flags = flags,
                                  .bank_count = 1,
                                  .merge = 1,
                                  .weight_type = (uint8_t)type,
                                  .k = k,
                                  .n = n,
                                  .x_bank = LORA_BANK_ONCHIP,
                                  .y_bank = LORA_BANK_ONCHIP,
                                  .x_stride = stride,
                                  .y_offset = y_offset,
                                  .y_stride = n * 2,
                                  .bias_bank = width == 2 ? LORA_NO_BANK : SCALES,
                                  .y_type = LORA_FP16};
    board->state.row_count = rows;
    bank_new(board, WEIGHTS, (uint64_t)blocks * block_bytes(type));
    bank_new(board, SCALES, (n * 4 + 63) / 64 * 64 + n * 2);
    bank_new(board, LORA_BANK_ONCHIP, y_offset + rows * n * 2);
    if (board->largest) fill_largest(board, type, x);
    compare(board, &command);
}

static void check_attention(struct board *board, uint32_t type, uint32_t head_dim,
                            uint32_t committed) {
    uint32_t lines = head_dim / 2 + (type == LORA_KV_INT8_HEADS), q_width = type == LORA_KV_INT8;
    uint32_t q_bytes = head_dim * (q_width ? 1 : 2), y_offset = (2 * q_bytes + 63) / 64 * 64;
    struct lora_attention command = {.opcode = LORA_CMD_ATTENTION,
                                     .head_dim = (uint16_t)head_dim,
                                     .q_heads = 1,
                                     .kv_heads = 1,
                                     .group = 1,
                                     .q_stride = q_bytes,
                                     .y_offset = y_offset,
                                     .y_stride = head_dim * 2,
                                     .scale = 0x38d1b717, /* 1e-4 */
                                     .v_scale = 0x3c23d70a};
    board->list = (struct lora_list){.kv_bank_first = KEYS,
                                     .kv_bank_count = 1,
                                     .kv_layers = 1,
                                     .kv_heads = 1,
                                     .head_dim = (uint16_t)head_dim,
                                     .kv_type = (uint16_t)type,
                                     .table_bank = TABLE,
                                     .max_tiles = 8,
                                     .page_count = 9};
    board->state.row_count = 2;
    board->state.lengths[0] = committed;
    for (int16_t i = 0; i < 2; i++) {
        board->state.rows[i] = (struct lora_row){.slot = i, .position = committed + (uint32_t)i};
        board->state.slots[i] = (struct lora_slot){.parent = (int16_t)(i - 1), .valid = 1};
    }
    bank_new(board, KEYS, (9 * 3 - 1) * lines * 64ull); /* of the last page two blocks of three */
    bank_new(board, TABLE, 64);
    for (uint16_t tile = 0; tile < 8; tile++) {
        uint16_t page = (uint16_t)(8 - tile);
        memcpy(board->banks[TABLE] + tile * 2, &page, 2);
    }
    bank_new(board, LORA_BANK_ONCHIP, y_offset + 2 * head_dim * 2);
    compare(board, &command);
}

static void check_vector(struct board *board, uint32_t op, uint32_t columns, uint32_t extra) {
    uint32_t y_offset = (columns * 2 + 63) / 64 * 64,
             z_offset = y_offset + (columns + 63) / 64 * 64;
    struct lora_vector command = {.opcode = LORA_CMD_VECTOR,
                                  .op = (uint8_t)op,
                                  .y_bank = LORA_BANK_ONCHIP,
                                  .columns = columns,
                                  .y_offset = y_offset,
                                  .z_offset = z_offset,
                                  .z_stride = 64,
                                  .x_stride = columns * 2,
                                  .y_stride = columns,
                                  .scalar = 0x41000000,
                                  .extra = extra};
    uint32_t z_bytes = extra > LORA_ROW_MAXIMA ? 4 : (uint32_t)sizeof(struct lora_row_scale);
    board->state.row_count = 1;
    bank_new(board, LORA_BANK_ONCHIP, z_offset + z_bytes);
    compare(board, &command);
}

int main(void) {
    static const uint32_t types[] = {LORA_WEIGHT_INT8, 0x54, 0x64, 0x74, 0x55, 0x75};
    static const uint32_t rows[] = {1, 3, 9, 64};
    struct board board = {.pool = lora_pool_create(2)};
    for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (uint32_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            check_matrix(&board, types[i], 384, 70, rows[r], 0);
            if (types[i] == LORA_WEIGHT_INT8) check_matrix(&board, types[i], 201, 33, rows[r], 0);
            if ((types[i] & LORA_WEIGHT_TYPE_MASK) != LORA_WEIGHT_W4A16)
                check_matrix(&board, types[i], 384, 70, rows[r], LORA_FLAG_ROW_SCALES);
        }
    board.largest = 1;
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
            check_matrix(&board, types[i], 384, 70, rows[r], 0);
    for (uint32_t type = LORA_KV_INT8; type <= LORA_KV_INT8_HEADS; type++)
        for (uint32_t committed = 0; committed < 100; committed += 33) {
            check_attention(&board, type, 64, committed);
            check_attention(&board, type, 38, committed);
        }
    for (uint32_t op = LORA_VEC_QUANTIZE; op <= LORA_VEC_QUANTIZE_HEADS; op++) {
        check_vector(&board, op, 96, 48);
        check_vector(&board, op, 74, 37);
    }
    for (uint32_t op = LORA_VEC_ROW_MAX; op <= LORA_VEC_QUANTIZE_ROW; op++) {
        check_vector(&board, op, 96, 8);
        check_vector(&board, op, 74, 1);
    }
    lora_native_force(NULL);
    lora_pool_free(board.pool);
    board_free(&board);
    puts("integer kernels: ok");
    return 0;
}

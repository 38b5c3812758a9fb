/* Step blocks for the firmware tests. */
#ifndef TEST_FW_STEP_H
#define TEST_FW_STEP_H

#include "fw_list.h"

enum { OPS_AT = 64, PATH_AT = 64 + 64 * 16, ROWS_AT = PATH_AT + 256, BLOCK = ROWS_AT + 64 * 64 };

struct test_step {
    struct lora_step header;
    struct lora_kv_op ops[64];
    uint16_t path[128];
    struct lora_row rows[64];
};

static struct test_step step_new(uint32_t number, uint32_t epoch) {
    struct test_step step;
    memset(&step, 0, sizeof step);
    step.header = (struct lora_step){.size = sizeof step.header,
                                     .abi = LORA_ABI_NUMBER,
                                     .bytes = sizeof step,
                                     .step = number,
                                     .epoch = epoch,
                                     .rows_offset = ROWS_AT,
                                     .kv_ops_offset = OPS_AT,
                                     .path_offset = PATH_AT};
    CHECK_EQUAL(sizeof step, BLOCK);
    return step;
}

static struct lora_kv_op *step_op(struct test_step *step, uint32_t kind, uint32_t sequence,
                                  uint32_t a, uint32_t b, uint32_t c) {
    struct lora_kv_op *op = &step->ops[step->header.kv_op_count++];
    *op = (struct lora_kv_op){(uint16_t)kind, (uint16_t)sequence, a, b, c};
    return op;
}

static struct lora_row *step_row(struct test_step *step, uint32_t sequence, uint32_t position,
                                 int32_t slot, int32_t parent) {
    struct lora_row *row = &step->rows[step->header.row_count++];
    *row = (struct lora_row){.sequence = sequence,
                             .position = position,
                             .token = 5,
                             .adapter = -1,
                             .slot = slot,
                             .parent = parent};
    return row;
}

static uint32_t step_run(const struct test_step *step) {
    memcpy(board.banks[CONTROL] + STEP_AT, step, sizeof *step);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = STEP_AT;
    board.registers[LORA_REG_LIST_ID / 4] = step->header.list_id;
    board.log_count = board.aborted = board.poisoned = 0;
    return operate(LORA_OP_STEP);
}

static uint16_t *table_entry(uint32_t sequence, uint32_t tile) {
    return (uint16_t *)(void *)(board.banks[CONTROL] + TABLE_AT + sequence * 64 + tile * 2);
}

/* A board with the list registered and sequence 0 at pages 2, 3, ... */
static void board_ready(struct test_list *list) {
    board_open();
    CHECK_EQUAL(list_register(list), LORA_OK);
    for (uint32_t tile = 0; tile < 8; tile++) *table_entry(0, tile) = (uint16_t)(2 + tile);
}

#endif

/* Step blocks: numbers and epochs, header, rows; a failing step leaves no trace. */
#include "fw_chain.h"

static void test_numbers(void) {
    struct test_step step = step_new(2, 0);
    board_ready(&list);
    step_row(&step, 0, 0, 10, -1);
    CHECK_EQUAL(step_run(&step), LORA_ERR_STEP);
    CHECK_EQUAL(error_record().found, 2);
    CHECK_EQUAL(error_record().expected, 1);
    step.header.step = 1;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(step_run(&step), LORA_ERR_STEP); /* done; the same epoch again */
    step.header.epoch = 3;
    CHECK_EQUAL(step_run(&step), LORA_OK); /* slot 10 is free again: the tables went back */
    CHECK_EQUAL(board.epoch, 3);
    CHECK_EQUAL(completion().epoch, 3);
    step.header.epoch = 2;
    CHECK_EQUAL(step_run(&step), LORA_ERR_STEP);
    step = step_new(2, 2);
    CHECK_EQUAL(step_run(&step), LORA_ERR_STEP); /* epochs never fall */
    step.header.epoch = 3;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

static void test_header(void) {
    const struct {
        uint32_t offset, value, code;
    } bad[] = {
        {offsetof(struct lora_step, size), 63, LORA_ERR_SIZE},
        {offsetof(struct lora_step, abi), LORA_ABI_NUMBER + 1, LORA_ERR_ABI},
        {offsetof(struct lora_step, bytes), 0xffffffff, LORA_ERR_ADDRESS},
        {offsetof(struct lora_step, bytes), LIST_AT - STEP_AT + 1, LORA_ERR_ADDRESS},
        {offsetof(struct lora_step, bytes), ROWS_AT + 63, LORA_ERR_SIZE},
        {offsetof(struct lora_step, list_id), 1, LORA_ERR_LIST},
        {offsetof(struct lora_step, list_id), 7, LORA_ERR_LIST},
        {offsetof(struct lora_step, row_count), ROWS + 1, LORA_ERR_SIZE},
        {offsetof(struct lora_step, row_count), 0xffffffff, LORA_ERR_SIZE},
        {offsetof(struct lora_step, rows_offset), 0xfffffffc, LORA_ERR_SIZE},
        {offsetof(struct lora_step, rows_offset), ROWS_AT + 2, LORA_ERR_SIZE},
        {offsetof(struct lora_step, rows_offset), 60, LORA_ERR_SIZE},
        {offsetof(struct lora_step, kv_op_count), LORA_MAX_KV_OPS + 1, LORA_ERR_SIZE},
        {offsetof(struct lora_step, kv_ops_offset), BLOCK, LORA_ERR_SIZE},
        {offsetof(struct lora_step, path_count), 4097, LORA_ERR_SIZE},
        {offsetof(struct lora_step, path_offset), BLOCK - 1, LORA_ERR_SIZE},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct test_step step = step_new(1, 0);
        board_ready(&list);
        step_row(&step, 0, 0, 10, -1);
        step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
        step_path(&step, 0);
        memcpy((uint8_t *)&step.header + bad[i].offset, &bad[i].value, 4);
        if (step_run(&step) != bad[i].code) {
            fprintf(stderr, "header case %u: status %u, expected %u\n", i, completion().status,
                    bad[i].code);
            exit(1);
        }
        CHECK_EQUAL(board.log_count, 0);
        board_close();
    }
}

static void test_rows(void) {
    const struct {
        uint32_t offset, value;
    } bad[] = {
        {offsetof(struct lora_row, sequence), 4},
        {offsetof(struct lora_row, position), 256},
        {offsetof(struct lora_row, position), 4},
        {offsetof(struct lora_row, position), 0xffffffff},
        {offsetof(struct lora_row, token), 100},
        {offsetof(struct lora_row, adapter), 0},
        {offsetof(struct lora_row, slot), 64},
        {offsetof(struct lora_row, slot), 0xffffffff},
        {offsetof(struct lora_row, slot), 12}, /* an uncommitted row has it */
        {offsetof(struct lora_row, parent), 64},
        {offsetof(struct lora_row, parent), 0xfffffffe},
        {offsetof(struct lora_row, parent), 20}, /* nobody has it */
        {offsetof(struct lora_row, parent), 11}, /* lies elsewhere */
        {offsetof(struct lora_row, parent), 0xffffffff},
        {offsetof(struct lora_row, sequence), 1}, /* the parent is of sequence 0 */
        {offsetof(struct lora_row, flags), 0x10},
        {offsetof(struct lora_row, flags), LORA_ROW_WANT_HIDDEN}, /* the list has no taps */
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct test_step step = step_new(2, 0);
        struct lora_row *row;
        chain();
        step_row(&step, 0, 3, 14, 12);
        row = step_row(&step, 0, 3, 15, 12);
        memcpy((uint8_t *)row + bad[i].offset, &bad[i].value, 4);
        if (step_run(&step) != LORA_ERR_ROW || error_record().row != 1) {
            fprintf(stderr, "row case %u: status %u\n", i, completion().status);
            exit(1);
        }
        CHECK_EQUAL(board.log_count, 0);
        CHECK_EQUAL(board.poisoned, 1);
        step.rows[1] = step.rows[0];
        step.rows[1].slot = 15;
        CHECK_EQUAL(step_run(&step), LORA_OK); /* slot 14 was not taken by the failed step */
        board_close();
    }
}

static void test_vector_rows(void) {
    struct test_step step = step_new(1, 0);
    struct lora_row *row;
    board_ready(&list);
    row = step_row(&step, 0, 0, 10, -1);
    row->flags = LORA_ROW_VECTOR;
    row->token = BLOCK - 127;
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    row->token = BLOCK - 126;
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    row->token = 0xfffffffe;
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    row->token = 32;
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    row->token = BLOCK - 128;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

static void test_selected(void) {
    struct test_step step = step_new(1, 0);
    board_ready(&list);
    for (int32_t i = 0; i < ROWS; i++)
        step_row(&step, 0, (uint32_t)i, i, i - 1)->flags = i % 3 == 1   ? LORA_ROW_WANT_LOGITS
                                                           : i % 7 == 0 ? LORA_ROW_WANT_ARGMAX
                                                                        : 0;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(completion().row_count, ROWS);
    CHECK_EQUAL(completion().selected_count, 17);
    board_close();
}

/* A step that failed after it had been done once is the next one again. */
static void test_failed_redo(void) {
    struct test_step step;
    chain();
    step = commit_three(2, 0);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    step.header.epoch = 1;
    board.units[LORA_UNIT_DMA].status = LORA_ERR_UNIT;
    CHECK_EQUAL(step_run(&step), LORA_ERR_UNIT);
    board.units[LORA_UNIT_DMA].status = LORA_OK;
    step.header.step = 3;
    CHECK_EQUAL(step_run(&step), LORA_ERR_STEP);
    step.header.step = 2;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

static void test_lists_must_hold(void) {
    struct test_step step = step_new(1, 0);
    board_ready(&list);
    step_row(&step, 0, 0, 10, -1);
    board.banks[CONTROL][LIST_AT + 256 + MATRIX_AT * 64 + 20] ^= 1;
    CHECK_EQUAL(step_run(&step), LORA_ERR_CRC);
    board.banks[CONTROL][LIST_AT + 256 + MATRIX_AT * 64 + 20] ^= 1;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    step = step_new(2, 0);
    set_arena(5, 9, 0, 64); /* one more arena changes nothing */
    CHECK_EQUAL(step_run(&step), LORA_OK);
    step.header.step = 3;
    set_arena(2, 2, 0, BANK_BYTES - 64); /* another size does */
    CHECK_EQUAL(step_run(&step), LORA_ERR_LIST);
    CHECK_EQUAL(list_register(&list), LORA_OK);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

/* Rubbish in any word of a block: no access outside of an arena, always an end. */
static void test_rubbish(void) {
    uint32_t random = 7;
    for (uint32_t round = 0; round < control_rounds(2000); round++) {
        struct test_step step;
        uint32_t word, value;
        chain();
        step = commit_three(2, 0);
        step_op(&step, LORA_KV_COPY, 0, 3, 4, 5);
        step_op(&step, LORA_KV_TABLE, 0, 0, 11, 0);
        step_row(&step, 0, 3, 13, -1);
        random = random * 1664525u + 1013904223u;
        word = (random >> 8) % (round % 2 ? 16 : sizeof step / 4);
        random = random * 1664525u + 1013904223u;
        value = random >> (random % 28);
        memcpy((uint8_t *)&step + word * 4, &value, 4);
        (void)step_run(&step);
        board_close();
    }
}

static const struct test_case cases[] = {
    CASE(numbers),     CASE(header),          CASE(rows),    CASE(vector_rows), CASE(selected),
    CASE(failed_redo), CASE(lists_must_hold), CASE(rubbish),
};

int main(int argc, char **argv) {
    list = list_new();
    return RUN_CASES(cases, argc, argv);
}

/* Step blocks: numbers and epochs, rows, KV operations, and that a failing step leaves no trace. */
#include "fw_step.h"

static struct test_list list;

/* The n-th start of an opcode in the last step. */
static const struct started *start_of(uint32_t opcode, uint32_t n)
{
    for (uint32_t i = 0; i < board.log_count; i++)
        if (board.log[i].command.opcode == opcode && n-- == 0)
            return &board.log[i];
    fprintf(stderr, "opcode %u was not started that often\n", opcode);
    exit(1);
}

static void step_path(struct test_step *step, uint16_t slot)
{
    step->path[step->header.path_count++] = slot;
}

/* Sequence 0: step 1 writes a chain of three rows and a sibling of the second. */
static void chain(void)
{
    struct test_step step = step_new(1, 0);
    board_ready(&list);
    step_row(&step, 0, 0, 10, -1);
    step_row(&step, 0, 1, 11, 10);
    step_row(&step, 0, 2, 12, 11);
    step_row(&step, 0, 1, 13, 10);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(completion().row_count, 4);
    CHECK_EQUAL(completion().step, 1);
}

static struct test_step commit_three(uint32_t number, uint32_t epoch)
{
    struct test_step step = step_new(number, epoch);
    step_path(&step, 10);
    step_path(&step, 11);
    step_path(&step, 12);
    step_op(&step, LORA_KV_COMMIT, 0, 0, 0, 3);
    return step;
}

static void test_numbers(void)
{
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
    board.registers[LORA_REG_STEP / 4] = 9;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

static void test_header(void)
{
    const struct {
        uint32_t offset, value, code;
    } bad[] = {
        {offsetof(struct lora_step, size), 63, LORA_ERR_SIZE},
        {offsetof(struct lora_step, abi), 2, LORA_ERR_ABI},
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

static void test_rows(void)
{
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
        {offsetof(struct lora_row, parent), 11}, /* stands elsewhere */
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

static void test_vector_rows(void)
{
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

static void test_selected(void)
{
    struct test_step step = step_new(1, 0);
    board_ready(&list);
    for (int32_t i = 0; i < ROWS; i++)
        step_row(&step, 0, (uint32_t)i, i, i - 1)->flags =
            i % 3 == 1 ? LORA_ROW_WANT_LOGITS : i % 7 == 0 ? LORA_ROW_WANT_ARGMAX : 0;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(completion().row_count, ROWS);
    CHECK_EQUAL(completion().selected_count, 17);
    board_close();
}

/* Commits, and what may follow in the same header. */
static void test_commit(void)
{
    struct test_step step;
    chain();
    step = commit_three(2, 0);
    step_row(&step, 0, 3, 13, -1); /* 13 was dropped with the commit */
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_count, 1);
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_first, STEP_AT + OPS_AT);
    step = step_new(3, 0);
    step_row(&step, 0, 4, 11, 13);
    step_row(&step, 0, 3, 12, -1);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

static void test_commit_is_redone(void)
{
    struct test_step step;
    chain();
    step = commit_three(2, 0);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(step_run(&step), LORA_ERR_STEP);
    step.header.epoch = 1;
    CHECK_EQUAL(step_run(&step), LORA_OK); /* from length 0 again */
    CHECK_EQUAL(board.log_count, 1);       /* no rows: KV_COMMIT alone */
    step.header.step = 3;
    CHECK_EQUAL(step_run(&step), LORA_ERR_KV); /* a commit names the length that it starts from */
    CHECK_EQUAL(error_record().found, 0);
    CHECK_EQUAL(error_record().expected, 3);
    board_close();
}

static void expect_kv_error(struct test_step *step, const char *what)
{
    uint8_t before[0x200];
    memcpy(before, board.banks[CONTROL] + TABLE_AT, sizeof before);
    if (step_run(step) != LORA_ERR_KV) {
        fprintf(stderr, "%s: status %u, expected %u\n", what, completion().status, LORA_ERR_KV);
        exit(1);
    }
    CHECK_EQUAL(board.log_count, 0);
    CHECK(memcmp(before, board.banks[CONTROL] + TABLE_AT, sizeof before) == 0);
}

static void test_bad_operations(void)
{
    const struct {
        const char *what;
        struct lora_kv_op op;
    } bad[] = {
        {"kind", {9, 0, 0, 0, 0}},
        {"kind 0", {0, 0, 0, 0, 0}},
        {"sequence", {LORA_KV_LENGTH, 4, 0, 0, 0}},
        {"tile", {LORA_KV_TABLE, 0, 8, 5, 0}},
        {"page", {LORA_KV_TABLE, 0, 0, 20, 0}},
        {"scratch page", {LORA_KV_TABLE, 0, 0, 1, 0}},
        {"length", {LORA_KV_LENGTH, 0, 8 * 32 + 1, 0, 0}},
        {"copy from beyond", {LORA_KV_COPY, 0, 20, 3, 1}},
        {"copy to scratch", {LORA_KV_COPY, 0, 3, 0, 1}},
        {"copy of 33", {LORA_KV_COPY, 0, 3, 4, 33}},
        {"copy onto itself", {LORA_KV_COPY, 0, 3, 3, 4}},
        {"commit from another length", {LORA_KV_COMMIT, 0, 1, 0, 3}},
        {"commit beyond the path", {LORA_KV_COMMIT, 0, 0, 0, 6}},
        {"commit of 2^32", {LORA_KV_COMMIT, 0, 0, 1, 0xffffffff}},
        {"path index", {LORA_KV_COMMIT, 0, 0, 0xffffffff, 1}},
        {"path of another sequence", {LORA_KV_COMMIT, 1, 0, 0, 1}},
        {"path without its root", {LORA_KV_COMMIT, 0, 0, 1, 1}},
        {"path with a gap", {LORA_KV_COMMIT, 0, 0, 3, 2}},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct test_step step = step_new(2, 0);
        chain();
        step.header.path_count = 5;
        step.path[0] = step.path[3] = 10;
        step.path[1] = 11;
        step.path[2] = step.path[4] = 12;
        step_op(&step, LORA_KV_TABLE, 0, 3, 9, 0);
        step_op(&step, LORA_KV_TABLE, 0, 3, 10, 0);
        step.ops[step.header.kv_op_count++] = bad[i].op;
        expect_kv_error(&step, bad[i].what);
        CHECK_EQUAL(error_record().row, 2);
        board_close();
    }
}

/* Entries of the table in board memory may be anything: the host could write them. */
static void test_bad_table(void)
{
    struct test_step step;
    chain();
    step = commit_three(2, 0);
    *table_entry(0, 0) = 1;
    expect_kv_error(&step, "commit into a scratch page");
    *table_entry(0, 0) = 20;
    expect_kv_error(&step, "commit beyond the pool");
    CHECK_EQUAL(error_record().offset, TABLE_AT);
    *table_entry(0, 0) = 2;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    step = step_new(3, 0);
    step_row(&step, 0, 3, 1, -1);
    *table_entry(0, 0) = 0xffff;
    expect_kv_error(&step, "committed tile beyond the pool");
    board_close();
}

static void test_table_and_length(void)
{
    struct test_step step = step_new(1, 0);
    board_ready(&list);
    step_op(&step, LORA_KV_TABLE, 1, 0, 7, 0);
    step_op(&step, LORA_KV_TABLE, 1, 1, 8, 0);
    step_op(&step, LORA_KV_LENGTH, 1, 40, 0, 0);
    step_row(&step, 1, 40, 0, -1);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(*table_entry(1, 0), 7);
    CHECK_EQUAL(*table_entry(1, 1), 8);
    step = step_new(2, 0);
    step_row(&step, 1, 41, 1, 0);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    step = step_new(3, 0);
    step_op(&step, LORA_KV_LENGTH, 1, 0, 0, 0); /* freed: its uncommitted rows are dropped */
    step_row(&step, 1, 42, 2, 1);
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    step.header.row_count = 0;
    step_row(&step, 1, 0, 1, -1);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

/* A slot that this header commits is read again by a redone step. */
static void test_committed_slot_is_kept(void)
{
    struct test_step step;
    chain();
    step = commit_three(2, 0);
    step_row(&step, 0, 3, 12, -1);
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    CHECK_EQUAL(error_record().found, 12);
    board_close();
}

/* COMMIT, then a TABLE that takes its page away: the data moves first, with the old table. A failure
 * after that puts the table back, and the redone step moves it again to the same page. */
static void test_table_after_commit(void)
{
    struct test_step step;
    chain();
    step = commit_three(2, 0);
    step_op(&step, LORA_KV_TABLE, 1, 0, 2, 0);
    step_op(&step, LORA_KV_LENGTH, 1, 3, 0, 0);
    step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
    step_op(&step, LORA_KV_TABLE, 0, 0, 11, 0);
    step_row(&step, 1, 4, 20, -1);
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    CHECK_EQUAL(board.log_count, 1); /* the commit before the table's change */
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_first, STEP_AT + OPS_AT);
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_count, 4);
    CHECK_EQUAL(*table_entry(0, 0), 2);
    CHECK_EQUAL(*table_entry(1, 0), 0);
    step.rows[0].position = 3;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(*table_entry(0, 0), 11);
    CHECK_EQUAL(*table_entry(1, 0), 2);
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_count, 4);
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 1)->kv_count, 1); /* the rest, by the list's own command */
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 1)->kv_first, STEP_AT + OPS_AT + 64);
    step.header.epoch = 1;
    CHECK_EQUAL(step_run(&step), LORA_OK); /* redone though it was done: same moves, same table */
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_count, 4);
    CHECK_EQUAL(*table_entry(0, 0), 11);
    board_close();
}

/* A step that failed after it had been done once is the next one again. */
static void test_failed_redo(void)
{
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

static void test_lists_must_hold(void)
{
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
static void test_rubbish(void)
{
    uint32_t random = 7;
    for (uint32_t round = 0; round < 2000; round++) {
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

int main(void)
{
    list = list_new();
    test_numbers();
    test_header();
    test_rows();
    test_vector_rows();
    test_selected();
    test_commit();
    test_commit_is_redone();
    test_bad_operations();
    test_bad_table();
    test_table_and_length();
    test_committed_slot_is_kept();
    test_table_after_commit();
    test_failed_redo();
    test_lists_must_hold();
    test_rubbish();
    puts("firmware steps: ok");
    return 0;
}

/* The KV operations of a step's header: tables, lengths, commits, and that all of it can be
 * redone. */
#include "fw_chain.h"

/* The n-th start of an opcode in the last step. */
static const struct started *start_of(uint32_t opcode, uint32_t n) {
    for (uint32_t i = 0; i < board.log_count; i++)
        if (board.log[i].command.opcode == opcode && n-- == 0) return &board.log[i];
    fprintf(stderr, "opcode %u was not started that often\n", opcode);
    exit(1);
}

/* Commits, and what may follow in the same header. */
static void test_commit(void) {
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

static void test_commit_is_redone(void) {
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

static void expect_kv_error(struct test_step *step, const char *what) {
    uint8_t before[0x200];
    memcpy(before, board.banks[CONTROL] + TABLE_AT, sizeof before);
    if (step_run(step) != LORA_ERR_KV) {
        fprintf(stderr, "%s: status %u, expected %u\n", what, completion().status, LORA_ERR_KV);
        exit(1);
    }
    CHECK_EQUAL(board.log_count, 0);
    CHECK(memcmp(before, board.banks[CONTROL] + TABLE_AT, sizeof before) == 0);
}

static void test_bad_operations(void) {
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
        {"commit beyond the path", {LORA_KV_COMMIT, 0, 0, 0, 10}},
        {"commit of 2^32", {LORA_KV_COMMIT, 0, 0, 1, 0xffffffff}},
        {"path index", {LORA_KV_COMMIT, 0, 0, 0xffffffff, 1}},
        {"path of another sequence", {LORA_KV_COMMIT, 1, 0, 0, 1}},
        {"path without its root", {LORA_KV_COMMIT, 0, 0, 1, 1}},
        {"path with a gap", {LORA_KV_COMMIT, 0, 0, 3, 2}},
        {"path over a sibling", {LORA_KV_COMMIT, 0, 0, 5, 3}},
        {"slot beyond", {LORA_KV_COMMIT, 0, 0, 8, 1}},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct test_step step = step_new(2, 0);
        chain();
        step.header.path_count = 9;
        step.path[6] = 13; /* parent 10, as 11's; 12's parent is 11 */
        step.path[7] = 12;
        step.path[8] = 64;
        step.path[0] = step.path[3] = step.path[5] = 10;
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
static void test_bad_table(void) {
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

static void test_table_and_length(void) {
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

/* Positions end with the tiles that a sequence may have, whatever the model's positions. */
static void test_tiles_end(void) {
    struct test_list longer = list;
    struct test_step step = step_new(1, 0);
    longer.header.positions = 300;
    board_ready(&longer);
    step_op(&step, LORA_KV_LENGTH, 0, 8 * 32, 0, 0);
    step_row(&step, 0, 8 * 32, 10, -1);
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    step.ops[0].a = step.rows[0].position = 8 * 32 - 1;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

/* A slot that this header commits is read again by a redone step. */
static void test_committed_slot_is_kept(void) {
    struct test_step step;
    chain();
    step = commit_three(2, 0);
    step_row(&step, 0, 3, 12, -1);
    CHECK_EQUAL(step_run(&step), LORA_ERR_ROW);
    CHECK_EQUAL(error_record().found, 12);
    board_close();
}

/* COMMIT, then a TABLE that takes its page away: the data moves first, with the old table. A
 * failure after that puts the table back, and the redone step moves it again to the same page. */
static void test_table_after_commit(void) {
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
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 1)->kv_count,
                1); /* the rest, by the list's own command */
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 1)->kv_first, STEP_AT + OPS_AT + 64);
    step.header.epoch = 1;
    CHECK_EQUAL(step_run(&step), LORA_OK); /* redone though it was done: same moves, same table */
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_count, 4);
    CHECK_EQUAL(*table_entry(0, 0), 11);
    board_close();
}

/* A list with a KV_COMMIT a layer: each is told all operations of its own, and what a table needs
 * moved before it is moved in all layers. */
static void test_commit_by_layers(void) {
    const struct test_list whole = list;
    struct test_step step;
    commit_layers(list.commands);
    chain();
    CHECK_EQUAL(board.log_count > 0, 1);
    step = commit_three(2, 0);
    step_op(&step, LORA_KV_TABLE, 1, 0, 2, 0);
    step_op(&step, LORA_KV_LENGTH, 1, 3, 0, 0);
    step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
    step_op(&step, LORA_KV_TABLE, 0, 0, 11, 0);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(board.log_count, 3);
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->kv_count, 4);
    CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 0)->command.body[0], 0);
    for (uint32_t layer = 0; layer < 2; layer++) { /* the rest, by the list's own commands */
        CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 1 + layer)->kv_count, 1);
        CHECK_EQUAL(start_of(LORA_CMD_KV_COMMIT, 1 + layer)->command.body[0], layer | 1u << 16);
    }
    board_close();
    list = whole;
}

static const struct test_case cases[] = {
    CASE(commit),    CASE(commit_is_redone),   CASE(bad_operations),
    CASE(bad_table), CASE(table_and_length),   CASE(committed_slot_is_kept),
    CASE(tiles_end), CASE(table_after_commit), CASE(commit_by_layers),
};

int main(int argc, char **argv) {
    list = list_new();
    return RUN_CASES(cases, argc, argv);
}

/* GENERATE on a scripted board of two: tokens, ends, what it refuses, and that its last two steps
 * can be run again. The script says what the boards' shares of each step's logits are. */
#include "fw_ballot.h"

static void ready(void) {
    list = ballot_list();
    board_ready(&list);
    script_begin();
}

/* The block: the row and what follows in place of the rows of test_step. */
static struct lora_generate *generate_of(struct test_step *step) {
    return (struct lora_generate *)(void *)((uint8_t *)step + GENERATE_AT);
}

static struct test_step generate_new(uint32_t number, uint32_t epoch, uint32_t position,
                                     uint32_t count) {
    struct test_step step = step_new(number, epoch);
    struct lora_generate *generate = generate_of(&step);
    step.header.row_count = 1;
    step.header.generate_offset = GENERATE_AT;
    step.header.rows_offset = GENERATE_AT + offsetof(struct lora_generate, row);
    *generate = (struct lora_generate){.size = sizeof *generate,
                                       .max_tokens = count,
                                       .stop_offset = STOPS_AT,
                                       .slots = {10, 11, 12},
                                       .row = {.position = position,
                                               .token = 5,
                                               .adapter = -1,
                                               .slot = 10,
                                               .parent = -1,
                                               .flags = LORA_ROW_WANT_ARGMAX}};
    return step;
}

static void step_path(struct test_step *step, uint32_t slot) {
    step->path[step->header.path_count++] = (uint16_t)slot;
}

static uint32_t run_generate(const struct test_step *step) {
    memcpy(board.banks[CONTROL] + STEP_AT, step, sizeof *step);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = STEP_AT;
    board.registers[LORA_REG_LIST_ID / 4] = step->header.list_id;
    board.registers[LORA_REG_TOKEN / 4] = 0;
    board.log_count = board.aborted = board.poisoned = 0;
    return operate(LORA_OP_GENERATE);
}

static struct lora_token ring_entry(uint32_t step) {
    struct lora_token entry;
    memcpy(&entry, board.banks[CONTROL] + RING_AT + step % LORA_MAX_GENERATE * sizeof entry,
           sizeof entry);
    return entry;
}

static void expect_end(uint32_t end, uint32_t tokens, uint32_t last) {
    CHECK_EQUAL(completion().status, LORA_OK);
    CHECK_EQUAL(completion().end, end);
    CHECK_EQUAL(completion().tokens, tokens);
    CHECK_EQUAL(completion().step, last);
    CHECK_EQUAL(board.registers[LORA_REG_LAST_STEP / 4], last);
    uint32_t word = board.registers[LORA_REG_TOKEN / 4];
    CHECK(word & LORA_TOKEN_OVER);
    CHECK_EQUAL(word >> LORA_TOKEN_COUNT_SHIFT & LORA_TOKEN_COUNT_MASK, tokens);
}

static void test_tokens(void) {
    struct test_step step = generate_new(1, 0, 0, 7);
    ready();
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    expect_end(LORA_GENERATE_COUNT, 7, 7);
    CHECK_EQUAL(board.registers[LORA_REG_TOKEN / 4] & LORA_TOKEN_MASK, 57);
    for (uint32_t i = 1; i <= 7; i++) {
        struct lora_token entry = ring_entry(i);
        float value;
        memcpy(&value, &entry.value, 4);
        CHECK(entry.step == i && entry.epoch == 0 && entry.token == 50 + i && value == 2.0f);
        CHECK_EQUAL(script.positions[i], i - 1);
        CHECK_EQUAL(script.lengths[i], i - 1); /* the row before is committed */
        CHECK_EQUAL(script.tokens[i], i == 1 ? 5 : 49 + i);
        CHECK_EQUAL(script.slots[i], 10 + (i - 1) % 3);
    }
    /* A plain step goes on: 6 positions are committed, the last row waits in its slot. */
    step = step_new(8, 0);
    step_path(&step, 10);
    step_op(&step, LORA_KV_COMMIT, 0, 6, 0, 1);
    step_row(&step, 0, 7, 20, -1);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

static void expect_winner(float mine, uint32_t my_token, float theirs, uint32_t their_token,
                          uint32_t winner) {
    struct test_step step = generate_new(1, 0, 0, 1);
    ready();
    script.mine[1] = (struct lora_argmax){mine, my_token};
    script.theirs[1] = (struct lora_argmax){theirs, their_token};
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    if (winner == ~0u) expect_end(LORA_GENERATE_NONFINITE, 0, 1);
    else CHECK_EQUAL(ring_entry(1).token, winner);
    board_close();
}

static void test_winners(void) {
    const float nan = __builtin_nanf("");
    expect_winner(1.0f, 3, 2.0f, 60, 60);
    expect_winner(2.0f, 3, 1.0f, 60, 3);
    expect_winner(-2.0f, 3, -1.0f, 60, 60);
    expect_winner(-1.0f, 3, -2.0f, 60, 3);
    expect_winner(1.0f, 9, 1.0f, 60, 9); /* of equal ones the lowest */
    expect_winner(1.0f, 60, 1.0f, 9, 9);
    expect_winner(-0.0f, 60, 0.0f, 70, 60);
    expect_winner(0.0f, 70, -0.0f, 60, 60);
    expect_winner(-3.0f, 3, 0.0f, ~0u, 3); /* no vocabulary */
    expect_winner(5.0f, ~0u, -7.0f, 60, 60);
    expect_winner(nan, 3, 1.0f, 60, ~0u);
    expect_winner(1.0f, 3, -nan, 60, ~0u);
    expect_winner(1.0f, ~0u, 1.0f, ~0u, ~0u);
}

static void test_ends(void) {
    struct test_step step = generate_new(1, 0, 0, 9);
    uint32_t stops[] = {7, 53};
    ready();
    generate_of(&step)->stop_count = 2;
    memcpy((uint8_t *)&step + STOPS_AT, stops, sizeof stops);
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    expect_end(LORA_GENERATE_STOP, 3, 3);
    board_close();

    step = generate_new(1, 0, 0, 9);
    ready();
    script.cancel_at = 4;
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    expect_end(LORA_GENERATE_CANCELLED, 4, 4);
    board_close();

    /* Rank 1's wish does not count. */
    ready();
    board_close();
    list.header.rank = 1;
    list.header.port_next = LORA_NO_PORT;
    list.header.port_previous = 1;
    board_ready(&list);
    board.on_start = play;
    script.cancel_at = 2;
    script.their_rank = 0;
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    expect_end(LORA_GENERATE_COUNT, 9, 9);
    board_close();

    ready();
    script.their_nonfinite_at = 3;
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    expect_end(LORA_GENERATE_NONFINITE, 2, 3);    /* the third step is done and has no token */
    CHECK_EQUAL(completion().nonfinite_count, 0); /* it was the other board's */
    board_close();
}

/* A vote that was not sent for this step, or by another board, is not believed. */
static void test_votes_of_others(void) {
    struct test_step step = generate_new(1, 0, 0, 3);
    ready();
    script.their_step = 2; /* right in the second step alone */
    CHECK_EQUAL(run_generate(&step), LORA_ERR_GATHERED);
    CHECK(error_record().found == 2 && error_record().expected == 1);
    board_close();
    ready();
    script.their_rank = 0;
    CHECK_EQUAL(run_generate(&step), LORA_ERR_GATHERED);
    CHECK(error_record().found == 0 && error_record().expected == 1);
    CHECK_EQUAL(board.poisoned, 1);
    board_close();
}

/* Boards compare what they gathered, in a STEP and in each step of a GENERATE. */
static void test_gathers_that_differ(void) {
    ready();
    board.units[LORA_UNIT_ROUTER].result.value = 0x12345678; /* the sum of every gather */
    struct test_step step = step_new(1, 0);
    step_row(&step, 0, 0, 20, -1)->flags = LORA_ROW_WANT_ARGMAX;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    struct lora_vote mine = vote_at(0);
    CHECK_EQUAL(mine.digest, digest_of(digest_of(0, 0x12345678), 0x12345678)); /* two gathers */
    CHECK(mine.token == ~0u && mine.value == 0);
    step = step_new(2, 0);
    CHECK_EQUAL(step_run(&step), LORA_OK); /* without rows: nothing gathered, no vote */
    CHECK_EQUAL(vote_at(0).step, 1);
    for (uint32_t redo = 0; redo < 2; redo++) {
        step = step_new(3, redo);
        step_row(&step, 0, 0, 21, -1);
        script.differ_at = redo ? 0 : 3;
        CHECK_EQUAL(step_run(&step), redo ? LORA_OK : LORA_ERR_GATHERED);
    }
    step = step_new(4, 1);
    step_row(&step, 0, 0, 22, -1);
    script.differ_at = 4;
    CHECK_EQUAL(step_run(&step), LORA_ERR_GATHERED);
    CHECK_EQUAL(error_record().unit, LORA_UNIT_ROUTER);
    CHECK_EQUAL(error_record().found, vote_at(0).digest);
    CHECK_EQUAL(error_record().expected, vote_at(0).digest); /* of two boards, rank 0's */
    CHECK_EQUAL(board.registers[LORA_REG_LAST_STEP / 4], 3);
    step = generate_new(4, 2, 0, 9);
    script.differ_at = 7;
    CHECK_EQUAL(run_generate(&step), LORA_ERR_GATHERED);
    CHECK_EQUAL(completion().tokens, 3);
    CHECK_EQUAL(board.registers[LORA_REG_LAST_STEP / 4], 6);
    board_close();
    ready();
    script.garble_at = 2;
    step = generate_new(1, 0, 0, 9);
    CHECK_EQUAL(run_generate(&step), LORA_ERR_GATHERED);
    CHECK_EQUAL(completion().tokens, 1);
    board_close();
}

/* After a failure in step 4, this board runs step 4 again, or step 3 where others were behind. */
static void test_redo(void) {
    for (uint32_t behind = 0; behind < 2; behind++) {
        struct test_step step = generate_new(1, 0, 0, 9);
        ready();
        script.fail_at = 4;
        CHECK_EQUAL(run_generate(&step), LORA_ERR_UNIT);
        CHECK_EQUAL(completion().tokens, 3);
        CHECK_EQUAL(completion().step, 4);
        CHECK_EQUAL(error_record().step, 4);
        CHECK_EQUAL(board.poison_step, 4);
        CHECK_EQUAL(board.registers[LORA_REG_LAST_STEP / 4], 3);
        script.fail_at = 0;
        uint32_t next = 4 - behind, rows = next - 1; /* that have run */
        step = generate_new(next - 1, 1, rows - 1, 2);
        if (behind == 1) CHECK_EQUAL(run_generate(&step), LORA_ERR_STEP);
        step = generate_new(next, 1, rows, 5);
        step_path(&step, 10 + (rows - 1) % 3);
        step_op(&step, LORA_KV_COMMIT, 0, rows - 1, 0, 1);
        for (uint32_t i = 0; i < 3; i++)
            generate_of(&step)->slots[i] = (uint16_t)(10 + (rows + i) % 3);
        generate_of(&step)->row.slot = generate_of(&step)->slots[0];
        CHECK_EQUAL(run_generate(&step), LORA_OK);
        expect_end(LORA_GENERATE_COUNT, 5, next + 4);
        CHECK_EQUAL(script.lengths[next % TOKENS], rows);
        board_close();
    }
}

/* A run that this board has finished may have failed on another one in its last step. */
static void test_redo_of_the_last_step(void) {
    struct test_step step = generate_new(1, 0, 0, 3);
    ready();
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    step = step_new(3, 1);
    step_path(&step, 11);
    step_op(&step, LORA_KV_COMMIT, 0, 1, 0, 1);
    step_row(&step, 0, 2, 12, -1);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    step = step_new(4, 1);
    step_path(&step, 12);
    step_op(&step, LORA_KV_COMMIT, 0, 2, 0, 1);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    board_close();
}

static void test_pages_in_the_header(void) {
    struct test_step step = generate_new(1, 0, 0, 2);
    ready();
    *table_entry(0, 0) = 0; /* nothing there before */
    step_op(&step, LORA_KV_TABLE, 0, 0, 6, 0);
    step_op(&step, LORA_KV_TABLE, 0, 1, 7, 0);
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    CHECK(*table_entry(0, 0) == 6 && *table_entry(0, 1) == 7);
    board_close();
}

/* Each token has the whole time: two fifths of it a step, five steps. */
static void test_the_watchdog_counts_by_token(void) {
    struct test_step step = generate_new(1, 0, 0, 5);
    ready();
    board.units[LORA_UNIT_MPU].delay = WATCHDOG_CYCLES / 8; /* three commands a step */
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    CHECK(completion().cycles > WATCHDOG_CYCLES / 2 * 3);
    board.units[LORA_UNIT_MPU].delay = WATCHDOG_CYCLES / 5 * 2;
    step = generate_new(6, 0, 5, 5);
    step_path(&step, 11);
    step_op(&step, LORA_KV_COMMIT, 0, 4, 0, 1);
    CHECK_EQUAL(run_generate(&step), LORA_ERR_WATCHDOG);
    CHECK(completion().tokens == 0 && completion().step == 6);
    board_close();
}

#define FIELD(member) (GENERATE_AT + offsetof(struct lora_generate, member))

static void test_hostile_blocks(void) {
    const struct {
        uint32_t offset, value, code;
    } bad[] = {
        {offsetof(struct lora_step, generate_offset), 0, LORA_ERR_SIZE},
        {offsetof(struct lora_step, generate_offset), BLOCK - 4, LORA_ERR_SIZE},
        {offsetof(struct lora_step, generate_offset), GENERATE_AT + 2, LORA_ERR_SIZE},
        {offsetof(struct lora_step, generate_offset), 0xfffffffc, LORA_ERR_SIZE},
        {offsetof(struct lora_step, rows_offset), GENERATE_AT, LORA_ERR_SIZE},
        {offsetof(struct lora_step, row_count), 0, LORA_ERR_SIZE},
        {offsetof(struct lora_step, row_count), 2, LORA_ERR_SIZE},
        {FIELD(size), 124, LORA_ERR_SIZE},
        {FIELD(max_tokens), 0, LORA_ERR_SIZE},
        {FIELD(max_tokens), LORA_MAX_GENERATE + 1, LORA_ERR_SIZE},
        {FIELD(stop_count), LORA_MAX_STOP_TOKENS + 1, LORA_ERR_SIZE},
        {FIELD(stop_offset), BLOCK, LORA_ERR_SIZE},
        {FIELD(row.sequence), 4, LORA_ERR_KV},
        {FIELD(row.flags), LORA_ROW_WANT_LOGITS | LORA_ROW_WANT_ARGMAX, LORA_ERR_ROW},
        {FIELD(row.flags), 0, LORA_ERR_ROW},
        {FIELD(row.parent), 10, LORA_ERR_ROW},
        {FIELD(row.slot), 64, LORA_ERR_ROW},
        {FIELD(row.position), 1, LORA_ERR_ROW},
        {FIELD(row.token), 100, LORA_ERR_ROW},
        {offsetof(struct test_step, ops) + 4, 8, LORA_ERR_KV},
        {offsetof(struct test_step, ops) + 8, 1, LORA_ERR_KV},
        {offsetof(struct test_step, ops), 1 | 1u << 16, LORA_ERR_KV},
        {offsetof(struct test_step, ops), LORA_KV_LENGTH, LORA_ERR_KV},
        {offsetof(struct test_step, ops), LORA_KV_COPY, LORA_ERR_KV},
        {offsetof(struct test_step, ops), LORA_KV_COMMIT, LORA_ERR_KV},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct test_step step = generate_new(1, 0, 0, 2);
        ready();
        generate_of(&step)->stop_count = 1;
        step_op(&step, LORA_KV_TABLE, 0, 0, 6, 0);
        memcpy((uint8_t *)&step + bad[i].offset, &bad[i].value, 4);
        uint32_t code = run_generate(&step);
        if (code != bad[i].code) {
            fprintf(stderr, "case %u: status %u, expected %u\n", i, code, bad[i].code);
            exit(1);
        }
        CHECK_EQUAL(completion().tokens, 0);
        CHECK_EQUAL(board.registers[LORA_REG_LAST_STEP / 4], 0);
        board_close();
    }
}

/* Pages of positions that are committed may not change, nor may two rows be committed. */
static void test_hostile_operations(void) {
    struct test_step step = generate_new(1, 0, 0, 3);
    ready();
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    step = generate_new(4, 0, 3, 2);
    step_op(&step, LORA_KV_TABLE, 0, 0, 6, 0);
    CHECK_EQUAL(run_generate(&step), LORA_ERR_KV);
    step = generate_new(4, 0, 3, 2);
    step_path(&step, 12);
    step_op(&step, LORA_KV_COMMIT, 0, 2, 0, 1);
    step_op(&step, LORA_KV_COMMIT, 0, 3, 0, 1);
    CHECK_EQUAL(run_generate(&step), LORA_ERR_KV);
    step.header.kv_op_count = 1; /* and with one it runs */
    CHECK_EQUAL(run_generate(&step), LORA_OK);
    /* Slots that are not three: the second step's row finds its slot taken. */
    step = generate_new(6, 0, 5, 2);
    step_path(&step, 11);
    step_op(&step, LORA_KV_COMMIT, 0, 4, 0, 1);
    generate_of(&step)->slots[1] = 10;
    CHECK_EQUAL(run_generate(&step), LORA_ERR_ROW);
    CHECK_EQUAL(completion().tokens, 1);
    board_close();
}

/* A block that is overwritten while boards run is checked as the first one was. */
static void overwrite(const struct lora_command *command, const struct lora_step_state *state) {
    uint32_t sequence = 0x10000;
    play(command, state);
    memcpy(board.banks[CONTROL] + STEP_AT + FIELD(row), &sequence, sizeof sequence);
    memcpy(board.banks[CONTROL] + STEP_AT + FIELD(stop_offset), &sequence, sizeof sequence);
}

static void test_an_overwritten_block(void) {
    struct test_step step = generate_new(1, 0, 0, 3);
    ready();
    board.on_start = overwrite;
    CHECK_EQUAL(run_generate(&step), LORA_OK); /* the firmware writes its own again */
    expect_end(LORA_GENERATE_COUNT, 3, 3);
    board_close();
}

static void test_lists(void) {
    struct test_step step = generate_new(1, 0, 0, 2);
    const struct {
        uint32_t index, offset, value, code;
    } bad[] = {
        {BALLOT_AT, offsetof(struct lora_ballot, votes_offset), RESULTS_AT - 4, LORA_ERR_ADDRESS},
        {BALLOT_AT, offsetof(struct lora_ballot, votes_offset), RESULTS_AT + 2, LORA_ERR_ADDRESS},
        {BALLOT_AT, offsetof(struct lora_ballot, ring_offset),
         RESULTS_AT + RESULTS_BYTES - 64 * 16 + 4, LORA_ERR_ADDRESS},
        {BALLOT_AT, offsetof(struct lora_ballot, argmax_offset), 4, LORA_ERR_ADDRESS},
        {ALL_AT, offsetof(struct lora_move_rows, y_offset), RESULTS_AT + RESULTS_BYTES - 60,
         LORA_ERR_ADDRESS},
        {VOTES_GATHER_AT, offsetof(struct lora_gather, offset), ONCHIP_BYTES - 60,
         LORA_ERR_ADDRESS},
        {OWN_AT, 0, LORA_CMD_BALLOT, LORA_ERR_OPCODE},
    };
    board_open();
    list = list_new();
    CHECK_EQUAL(list_register(&list), LORA_OK);
    CHECK_EQUAL(run_generate(&step), LORA_ERR_LIST); /* it has no BALLOT */
    for (uint32_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        list = ballot_list();
        memcpy((uint8_t *)&list.commands[bad[i].index] + bad[i].offset, &bad[i].value, 4);
        CHECK_EQUAL(list_register(&list), bad[i].code);
        CHECK_EQUAL(error_record().index, bad[i].index);
    }
    list = ballot_list();
    list.commands[ROPE_AT] = list.commands[BALLOT_AT];
    CHECK_EQUAL(list_register(&list), LORA_ERR_OPCODE); /* a second one */
    CHECK_EQUAL(error_record().expected, ROPE_AT);
    list = ballot_list();
    list.commands[MATRIX_AT].command.flags |= LORA_FLAG_VOTES;
    CHECK_EQUAL(list_register(&list), LORA_ERR_OPCODE);
    board_close();
}

static const struct test_case cases[] = {
    CASE(tokens),
    CASE(winners),
    CASE(ends),
    CASE(votes_of_others),
    CASE(gathers_that_differ),
    CASE(redo),
    CASE(redo_of_the_last_step),
    CASE(pages_in_the_header),
    CASE(the_watchdog_counts_by_token),
    CASE(hostile_blocks),
    CASE(hostile_operations),
    CASE(an_overwritten_block),
    CASE(lists),
};

int main(int argc, char **argv) { return RUN_CASES(cases, argc, argv); }

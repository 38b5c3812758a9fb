/* Running a list: order by counters, fences, failures, the watchdog, records; checksum, link
 * test. */
#include "fw_step.h"

static struct test_list list;

static struct test_step one_row(uint32_t number, uint32_t flags) {
    struct test_step step = step_new(number, 0);
    step_row(&step, 0, 0, 10, -1)->flags = flags;
    return step;
}

/* Place of a list's command in the order of starts, ~0 where it was not started. */
static uint32_t order_of(uint32_t index) {
    for (uint32_t i = 0; i < board.log_count; i++)
        if (board.log[i].command.layer == index) return i;
    return 0xffffffff;
}

static void expect_order(uint32_t first, uint32_t second) {
    CHECK(order_of(first) != 0xffffffff && order_of(second) != 0xffffffff);
    CHECK(order_of(first) < order_of(second));
}

/* The waits of fw_list.h hold whatever the units' speed; every command starts once. */
static void test_order(void) {
    for (uint32_t round = 0; round < control_rounds(81); round++) {
        struct test_step step = one_row(1, LORA_ROW_WANT_ARGMAX);
        uint32_t speed = round;
        board_ready(&list);
        step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0); /* gives KV_COMMIT something to do */
        for (uint32_t unit = 1; unit < LORA_UNITS; unit++, speed /= 3)
            board.units[unit].delay = speed % 3 * 7 * POLL_CYCLES;
        CHECK_EQUAL(step_run(&step), LORA_OK);
        CHECK_EQUAL(board.log_count, FENCE_AT);
        CHECK_EQUAL(board.traced, FENCE_AT * 0x10001);
        expect_order(EMBED_AT, GATHER_AT);
        expect_order(GATHER_AT, MATRIX_AT);
        expect_order(MATRIX_AT, ROPE_AT);
        expect_order(ROPE_AT, KV_STORE_AT);
        expect_order(KV_COMMIT_AT, KV_STORE_AT);
        expect_order(KV_STORE_AT, ATTENTION_AT);
        expect_order(ATTENTION_AT, PACK_AT);
        expect_order(PACK_AT, HEAD_GATHER_AT);
        expect_order(HEAD_GATHER_AT, HEAD_AT);
        expect_order(HEAD_AT, ARGMAX_AT);
        board_close();
    }
}

/* No selected rows: what works on them is passed over; no rows: all but KV_COMMIT is. */
static void test_nothing_to_do(void) {
    struct test_step step = one_row(1, 0);
    board_ready(&list);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(board.log_count, 6); /* no operations, so no KV_COMMIT either */
    CHECK_EQUAL(order_of(PACK_AT), 0xffffffff);
    CHECK_EQUAL(order_of(HEAD_AT), 0xffffffff);
    step = step_new(2, 0);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(board.log_count, 0);
    board_close();
}

static void poll(uint32_t times) {
    times *= SIMULATED ? 4 : 1; /* a poll is no more than 500 cycles there */
    while (times--) (void)board_poll();
}

static void start_step(const struct test_step *step) {
    memcpy(board.banks[CONTROL] + STEP_AT, step, sizeof *step);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = STEP_AT;
    board.registers[LORA_REG_OPERATION / 4] = LORA_OP_STEP;
    board.registers[LORA_REG_AP_CTRL / 4] = LORA_AP_START;
    board.log_count = 0;
}

/* A matmul that waits for segments starts when all eight have all their row groups, gather done or
 * not; with two groups, one is not enough. */
static void test_segments(void) {
    struct test_step step = step_new(1, 0);
    board_ready(&list);
    for (int32_t i = 0; i < 17; i++) step_row(&step, 0, (uint32_t)i, i, i - 1);
    board.units[LORA_UNIT_ROUTER].stuck = 1;
    start_step(&step);
    poll(20);
    CHECK(order_of(GATHER_AT) != 0xffffffff);
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) board.segments[s] = s == 3 ? 1 : 2;
    poll(20);
    CHECK_EQUAL(order_of(MATRIX_AT), 0xffffffff);
    board.segments[3] = 2;
    poll(20);
    CHECK(order_of(MATRIX_AT) != 0xffffffff);
    CHECK_EQUAL(board.registers[LORA_REG_LAST_INDEX / 4 + LORA_UNIT_ROUTER], GATHER_AT);
    CHECK_EQUAL(board.registers[LORA_REG_UNIT_STATE / 4 + LORA_UNIT_ROUTER], LORA_UNIT_BUSY);
    CHECK_EQUAL(board.registers[LORA_REG_LAST_INDEX / 4 + LORA_UNIT_MPU], ATTENTION_AT);
    CHECK_EQUAL(board.registers[LORA_REG_FIRMWARE_STATE / 4], LORA_FW_WAITING);
    board.units[LORA_UNIT_ROUTER].stuck = 0;
    memset(board.segments, 0, sizeof board.segments);
    poll(40);
    CHECK_EQUAL(completion().status, LORA_OK);
    CHECK(board.registers[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE);
    board_close();
}

/* Nothing behind a FENCE starts while a unit before it still runs, on whichever unit. */
static void test_fence(void) {
    struct test_step step = one_row(1, LORA_ROW_WANT_ARGMAX);
    struct test_list fenced = list;
    memmove(&fenced.commands[2], &fenced.commands[1], (COMMANDS - 1) * 64);
    fenced.commands[1] = list.commands[FENCE_AT];
    fenced.header.command_count = COMMANDS + 1;
    board_ready(&fenced);
    board.units[LORA_UNIT_DMA].stuck = 1;
    step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
    start_step(&step);
    poll(60);
    CHECK_EQUAL(board.log_count, 1);
    CHECK_EQUAL(board.registers[LORA_REG_LAST_INDEX / 4], 0xffffffff);
    board.units[LORA_UNIT_DMA].stuck = 0;
    poll(80);
    CHECK_EQUAL(completion().status, LORA_OK);
    CHECK_EQUAL(board.log_count, FENCE_AT);
    CHECK_EQUAL(board.registers[LORA_REG_LAST_INDEX / 4], COMMANDS); /* END */
    board_close();
}

static void test_unit_failure(void) {
    struct test_step step = one_row(1, 0);
    board_ready(&list);
    *table_entry(1, 0) = 5;
    step_op(&step, LORA_KV_TABLE, 1, 0, 6, 0);
    board.units[LORA_UNIT_DMA].delay = 10000; /* busy when the VFU fails */
    board.units[LORA_UNIT_VFU].delay = POLL_CYCLES;
    board.units[LORA_UNIT_VFU].status = LORA_ERR_UNIT;
    CHECK_EQUAL(step_run(&step), LORA_ERR_UNIT);
    CHECK_EQUAL(error_record().index, EMBED_AT);
    CHECK_EQUAL(error_record().opcode, LORA_CMD_VECTOR);
    CHECK_EQUAL(error_record().unit, LORA_UNIT_VFU);
    CHECK_EQUAL(error_record().step, 1);
    CHECK_EQUAL(board.aborted, 1u << LORA_UNIT_DMA);
    CHECK_EQUAL(board.poisoned, 1);
    CHECK_EQUAL(*table_entry(1, 0), 5);
    board.units[LORA_UNIT_VFU].status = LORA_OK;
    CHECK_EQUAL(step_run(&step), LORA_OK); /* the same step, the same slot */
    CHECK_EQUAL(*table_entry(1, 0), 6);
    CHECK_EQUAL(error_record().code, LORA_OK);
    board_close();
}

static void test_link_failure(void) {
    struct test_step step = one_row(1, 0);
    board_ready(&list);
    step.header.epoch = 4;
    board.units[LORA_UNIT_ROUTER].status = LORA_ERR_LINK_CRC;
    board.units[LORA_UNIT_ROUTER].result.port = 1;
    CHECK_EQUAL(step_run(&step), LORA_ERR_LINK_CRC);
    CHECK_EQUAL(error_record().port, 1);
    CHECK_EQUAL(error_record().index, GATHER_AT);
    CHECK_EQUAL(board.poison_epoch, 4);
    board_close();
}

/* A stuck unit of this board is told at three quarters of the time, a silent neighbour at its
 * end. */
static void test_watchdog(void) {
    static const struct {
        uint32_t unit, index, quarters;
    } cases[] = {{LORA_UNIT_MPU, MATRIX_AT, 3},
                 {LORA_UNIT_VFU, EMBED_AT, 3},
                 {LORA_UNIT_DMA, KV_STORE_AT, 3},
                 {LORA_UNIT_ROUTER, GATHER_AT, 4}};
    for (uint32_t i = 0; i < 4; i++) {
        struct test_step step = one_row(1, 0);
        uint64_t took;
        board_ready(&list);
        board.units[cases[i].unit].stuck = 1;
        CHECK_EQUAL(step_run(&step), LORA_ERR_WATCHDOG);
        took = completion().cycles;
        CHECK(took >= WATCHDOG_CYCLES / 4 * cases[i].quarters);
        CHECK(took < WATCHDOG_CYCLES / 4 * cases[i].quarters + SLACK_CYCLES);
        CHECK_EQUAL(error_record().index, cases[i].index);
        CHECK_EQUAL(error_record().unit, cases[i].unit);
        CHECK_EQUAL(board.aborted, 1u << cases[i].unit);
        CHECK_EQUAL(board.poisoned, 1);
        board.units[cases[i].unit].stuck = 0;
        CHECK_EQUAL(step_run(&step), LORA_OK);
        board_close();
    }
}

static struct lora_router_record router_record(void) {
    struct lora_router_record record;
    memcpy(&record, board.banks[CONTROL] + LORA_ROUTER_OFFSET, sizeof record);
    return record;
}

/* Where the Router was when it failed by the watchdog or by poison; nothing while it was idle. */
static void test_router_record(void) {
    const struct lora_router_record done = {.waits = 0x101, .sent = {5, 6}, .received = {7, 8}};
    for (uint32_t i = 0; i < 3; i++) {
        struct test_step step = one_row(1, 0);
        board_ready(&list);
        board.router = done;
        if (i == 0) board.units[LORA_UNIT_ROUTER].stuck = 1;
        if (i == 1) board.units[LORA_UNIT_ROUTER].status = LORA_ERR_LINK_POISON;
        if (i == 2) board.units[LORA_UNIT_MPU].stuck = 1;
        CHECK_EQUAL(step_run(&step), i == 1 ? LORA_ERR_LINK_POISON : LORA_ERR_WATCHDOG);
        CHECK_EQUAL(router_record().size, sizeof done);
        CHECK_EQUAL(router_record().step, 1);
        CHECK_EQUAL(router_record().begun, i < 2);
        CHECK_EQUAL(router_record().waits, i < 2 ? 0x101 : 0);
        CHECK_EQUAL(router_record().sent[1], i < 2 ? 6 : 0);
        CHECK_EQUAL(router_record().received[0], i < 2 ? 7 : 0);
        board_close();
    }
}

static void test_one_board_does_not_poison(void) {
    struct test_list alone = list;
    struct test_step step = one_row(1, 0);
    alone.header.boards = 1;
    alone.header.port_next = LORA_NO_PORT;
    board_ready(&alone);
    board.units[LORA_UNIT_MPU].status = LORA_ERR_UNIT;
    CHECK_EQUAL(step_run(&step), LORA_ERR_UNIT);
    CHECK_EQUAL(board.poisoned, 0);
    board_close();
}

/* The first non-finite value is the first of the list, though another unit was faster. */
static void test_nonfinite(void) {
    struct test_step step = one_row(1, LORA_ROW_WANT_LOGITS);
    board_ready(&list);
    board.units[LORA_UNIT_DMA].delay = 500;
    board.units[LORA_UNIT_VFU].result.nonfinite_count = 1;
    step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
    board.units[LORA_UNIT_DMA].result.nonfinite_count = 2;
    board.units[LORA_UNIT_DMA].result.nonfinite_row = 7;
    board.units[LORA_UNIT_MPU].result.nonfinite_count = 1;
    board.units[LORA_UNIT_ROUTER].result.frames_sent = 3;
    board.units[LORA_UNIT_ROUTER].result.frames_received = 4;
    board.units[LORA_UNIT_ROUTER].result.frames_dropped = 1;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(completion().nonfinite_index, KV_COMMIT_AT);
    CHECK_EQUAL(completion().nonfinite_row, 7);
    CHECK_EQUAL(completion().nonfinite_count, 2 * 3 + 3 + 3);
    CHECK_EQUAL(completion().frames_sent, 6);
    CHECK_EQUAL(completion().frames_received, 8);
    CHECK_EQUAL(completion().frames_dropped, 2);
    CHECK(completion().cycles >= 500);
    step = step_new(2, 0);
    step_row(&step, 0, 1, 11, 10);
    board.units[LORA_UNIT_DMA].result.nonfinite_count = 0;
    board.units[LORA_UNIT_VFU].result.nonfinite_count = 0;
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(completion().nonfinite_index, MATRIX_AT); /* before ATTENTION's */
    board_close();
}

static uint32_t checksum(uint32_t bank, uint64_t offset, uint64_t bytes) {
    board.registers[LORA_REG_BANK / 4] = bank;
    board.registers[LORA_REG_OFFSET_LO / 4] = (uint32_t)offset;
    board.registers[LORA_REG_OFFSET_HI / 4] = (uint32_t)(offset >> 32);
    board.registers[LORA_REG_BYTES_LO / 4] = (uint32_t)bytes;
    board.registers[LORA_REG_BYTES_HI / 4] = (uint32_t)(bytes >> 32);
    return operate(LORA_OP_CHECKSUM);
}

static void test_checksum(void) {
    board_open();
    for (uint32_t i = 0; i < BANK_BYTES; i++) board.banks[1][i] = (uint8_t)(i * 7 + i / 251);
    CHECK_EQUAL(checksum(1, 0, BANK_BYTES), LORA_OK);
    CHECK_EQUAL(completion().checksum, lora_crc32(0, board.banks[1], BANK_BYTES));
    CHECK_EQUAL(checksum(1, 13, 1001), LORA_OK);
    CHECK_EQUAL(completion().checksum, lora_crc32(0, board.banks[1] + 13, 1001));
    CHECK_EQUAL(checksum(1, 0, 0), LORA_OK);
    CHECK_EQUAL(completion().checksum, 0);
    CHECK_EQUAL(checksum(1, 1, BANK_BYTES), LORA_ERR_ADDRESS);
    CHECK_EQUAL(error_record().bank, 1);
    CHECK_EQUAL(checksum(1, 0xffffffffffffffff, 2), LORA_ERR_ADDRESS);
    CHECK_EQUAL(checksum(1, 0, 0x100000001), LORA_ERR_ADDRESS);
    CHECK_EQUAL(checksum(LORA_BANK_ONCHIP, 0, 64), LORA_ERR_ADDRESS);
    board.units[LORA_UNIT_DMA].stuck = 1;
    CHECK_EQUAL(checksum(1, 0, 64), LORA_ERR_WATCHDOG);
    CHECK_EQUAL(error_record().unit, LORA_UNIT_DMA);
    board_close();
}

/* Ranges longer than one command are summed in slices: a bank of 3.5 slices, seen through one. */
static void test_checksum_slices(void) {
    static uint8_t large[3 * 0x100000 + 0x80000];
    uint8_t *small;
    board_open();
    small = board.banks[1];
    for (uint32_t i = 0; i < sizeof large; i++) large[i] = (uint8_t)(i >> 16 ^ i * 5);
    board.banks[1] = large;
    board.large_bank = 1;
    set_arena(1, 1, 0, sizeof large);
    CHECK_EQUAL(checksum(1, 0, sizeof large), LORA_OK);
    CHECK_EQUAL(board.log_count, 4);
    CHECK_EQUAL(completion().checksum, lora_crc32(0, large, sizeof large));
    board.banks[1] = small;
    board_close();
}

static uint32_t link_test(struct lora_link_test *test) {
    memcpy(board.banks[CONTROL] + STEP_AT, test, sizeof *test);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = STEP_AT;
    (void)operate(LORA_OP_LINK_TEST);
    memcpy(test, board.banks[CONTROL] + STEP_AT, sizeof *test);
    return completion().status;
}

static void test_link_test(void) {
    struct lora_link_test test = {.size = sizeof test,
                                  .frames = 8,
                                  .payload = 4096,
                                  .ports = {{.enabled = 0}, {.enabled = 1}}};
    board_open();
    board.link_polls = 5;
    CHECK_EQUAL(link_test(&test), LORA_OK);
    CHECK_EQUAL(test.ports[1].received, 8);
    test.ports[1].received = 0;
    board.link_polls = 0xffffffff;
    CHECK_EQUAL(link_test(&test), LORA_ERR_WATCHDOG);
    CHECK_EQUAL(error_record().port, 1);
    board.link_polls = 0;
    board.link_state = LORA_UNIT_FAILED;
    CHECK_EQUAL(link_test(&test), LORA_ERR_LINK_DOWN);
    CHECK_EQUAL(error_record().port, 1);
    test.payload = 4097;
    CHECK_EQUAL(link_test(&test), LORA_ERR_SIZE);
    test.size = 8;
    CHECK_EQUAL(link_test(&test), LORA_ERR_SIZE);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = 0x40; /* the firmware's own page */
    CHECK_EQUAL(operate(LORA_OP_LINK_TEST), LORA_ERR_ADDRESS);
    board_close();
}

struct seen_run {
    struct lora_completion completion;
    struct lora_error_record error;
    uint32_t sequenced, started[LORA_UNITS], order[LORA_UNITS][COMMANDS];
};

/* A step of the list at `at`; `failing`: a unit that fails, 0 none. */
static struct seen_run seen_at(uint32_t at, uint32_t failing) {
    struct test_step step = one_row(1, LORA_ROW_WANT_ARGMAX);
    struct seen_run seen;
    memset(&seen, 0, sizeof seen);
    board_ready(&list);
    memmove(board.banks[CONTROL] + at, board.banks[CONTROL] + LIST_AT, 0x1000);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = at;
    CHECK_EQUAL(operate(LORA_OP_REGISTER), LORA_OK);
    step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
    board.units[LORA_UNIT_VFU].delay = 130;
    board.units[LORA_UNIT_DMA].delay = 5000;
    board.units[LORA_UNIT_MPU].result.nonfinite_count = 3;
    if (failing) board.units[failing].status = LORA_ERR_UNIT;
    CHECK_EQUAL(step_run(&step), failing ? LORA_ERR_UNIT : LORA_OK);
    for (uint32_t i = 0; i < board.log_count; i++) {
        const struct started *one = &board.log[i];
        seen.order[one->unit][seen.started[one->unit]++] = one->command.layer;
    }
    seen.completion = completion();
    seen.completion.cycles = 0;
    seen.error = error_record();
    seen.sequenced = control_sequenced();
    board_close();
    return seen;
}

/* The board's sequencer runs a list that lies on lines of 64 bytes, the firmware any other: each
 * unit has the same starts, the records are the same. */
static void test_list_between_lines(void) {
    for (uint32_t failing = 0; failing < LORA_UNITS; failing++) {
        struct seen_run on = seen_at(0x20000, failing), off = seen_at(0x20000 + 36, failing);
        CHECK_EQUAL(off.sequenced, 0);
        if (SIMULATED) CHECK(on.sequenced > 0);
        if (SIMULATED && !failing) CHECK_EQUAL(on.sequenced, FENCE_AT);
        off.sequenced = on.sequenced;
        CHECK(memcmp(&on, &off, sizeof on) == 0);
    }
}

/* Without an arena for the records there is only the done bit and the state register. */
static void test_no_control_bank(void) {
    board_open();
    board.registers[LORA_REG_CONTROL_BANK / 4] = 33;
    begin_operation(LORA_OP_IDENTIFY);
    poll(20);
    CHECK(board.registers[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE);
    board_close();
}

static const struct test_case cases[] = {
    CASE(order),     CASE(nothing_to_do),      CASE(segments),
    CASE(fence),     CASE(unit_failure),       CASE(link_failure),
    CASE(watchdog),  CASE(router_record),      CASE(one_board_does_not_poison),
    CASE(nonfinite), CASE(checksum),           CASE(checksum_slices),
    CASE(link_test), CASE(list_between_lines), CASE(no_control_bank),
};

int main(int argc, char **argv) {
    list = list_new();
    return RUN_CASES(cases, argc, argv);
}

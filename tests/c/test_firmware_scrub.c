/* Sums of weight regions by the firmware on a scripted board: what is refused, how much is summed
 * between steps and without them, what the host finds in the completion record and in the table. */
#include "fw_step.h"

enum { TABLE = 0x20000, REGIONS = 3, SIZE = 4096, SLICE = 1024 };

static struct test_list list;
static struct lora_scrub header;
static struct lora_region regions[REGIONS];

static void fill(void) {
    list = list_new();
    board_ready(&list);
    board.sums = 1;
    for (uint32_t r = 0; r < REGIONS; r++) {
        for (uint32_t i = 0; i < SIZE; i++)
            board.banks[r][i + 64] = (uint8_t)(i * 7 + r + (i >> 8));
        regions[r] = (struct lora_region){
            .offset = 64,
            .bytes = SIZE - 32 * r,
            .bank = r,
            .good_step = 77,
            .expected = lora_crc32(0, board.banks[r] + 64, SIZE - 32 * r)};
    }
    header = (struct lora_scrub){
        .size = sizeof header, .region_count = REGIONS, .slice_bytes = SLICE, .step_bytes = SLICE};
}

static uint32_t take(void) {
    header.crc = lora_crc32(0, regions, sizeof regions);
    memcpy(board.banks[CONTROL] + TABLE, &header, sizeof header);
    memcpy(board.banks[CONTROL] + TABLE + sizeof header, regions, sizeof regions);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = TABLE;
    return operate(LORA_OP_REGIONS);
}

static struct lora_region region(uint32_t number) {
    struct lora_region found;
    memcpy(&found, board.banks[CONTROL] + TABLE + sizeof header + number * sizeof found,
           sizeof found);
    return found;
}

static uint32_t scrub(uint64_t bytes) {
    board.registers[LORA_REG_BYTES_LO / 4] = (uint32_t)bytes;
    board.registers[LORA_REG_BYTES_HI / 4] = (uint32_t)(bytes >> 32);
    return operate(LORA_OP_SCRUB);
}

static void run_step(uint32_t number) {
    struct test_step step = step_new(number, 0);
    step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
    step_row(&step, 0, 0, 4, -1);
    CHECK_EQUAL(step_run(&step), LORA_OK);
}

/* The host has read the done bit, and nothing is asked. */
static void idle(uint32_t polls) {
    board.registers[LORA_REG_AP_CTRL / 4] = LORA_AP_IDLE;
    for (uint32_t i = 0; i < polls; i++)
        if (SIMULATED) control_idle();
        else (void)fw_poll(board.fw);
}

static uint32_t sums(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < board.log_count; i++)
        count += board.log[i].command.opcode == LORA_CMD_CHECKSUM;
    return count;
}

static void test_refusals(void) {
    fill();
    CHECK_EQUAL(take(), LORA_OK);
    header.size--;
    CHECK_EQUAL(take(), LORA_ERR_SIZE);
    header.size++;
    header.region_count = LORA_MAX_REGIONS + 1;
    CHECK_EQUAL(take(), LORA_ERR_SIZE);
    header.region_count = REGIONS;
    header.slice_bytes = 0;
    CHECK_EQUAL(take(), LORA_ERR_SIZE);
    header.slice_bytes = 0x100001;
    CHECK_EQUAL(take(), LORA_ERR_SIZE);
    header.slice_bytes = SLICE;
    regions[1].bytes = BANK_BYTES;
    CHECK_EQUAL(take(), LORA_ERR_ADDRESS);
    CHECK_EQUAL(error_record().bank, 1);
    regions[1].bytes = 0;
    CHECK_EQUAL(take(), LORA_ERR_SIZE);
    regions[1].bytes = SIZE;
    CHECK_EQUAL(take(), LORA_OK);
    board.banks[CONTROL][TABLE + sizeof header + 8] ^= 1; /* the sum does not hold */
    CHECK_EQUAL(operate(LORA_OP_REGIONS), LORA_ERR_CRC);
    CHECK_EQUAL(scrub(0), LORA_OK); /* without a table there is nothing to do */
    CHECK_EQUAL(completion().scrub.sums, 0);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = 0x800;
    CHECK_EQUAL(operate(LORA_OP_REGIONS), LORA_ERR_ADDRESS);
    board_close();
}

static void test_all_at_once(void) {
    fill();
    CHECK_EQUAL(take(), LORA_OK);
    CHECK_EQUAL(scrub(0), LORA_OK);
    CHECK_EQUAL(completion().scrub.passes, 1);
    CHECK_EQUAL(completion().scrub.sums, 3 * SIZE / SLICE);
    CHECK_EQUAL(completion().scrub.bytes, 3 * SIZE - 96);
    CHECK_EQUAL(completion().scrub.damaged, 0);
    for (uint32_t r = 0; r < REGIONS; r++) {
        CHECK_EQUAL(region(r).found, regions[r].expected);
        CHECK_EQUAL(region(r).good_step, 0);
    }
    board.banks[1][64 + SIZE - 33] ^= 0x10; /* the last byte of the second region */
    CHECK_EQUAL(scrub(0), LORA_OK);
    CHECK_EQUAL(completion().scrub.damaged, 2);
    CHECK_EQUAL(completion().scrub.expected, regions[1].expected);
    CHECK_EQUAL(completion().scrub.found, lora_crc32(0, board.banks[1] + 64, SIZE - 32));
    CHECK_EQUAL(completion().scrub.passes, 1);
    CHECK_EQUAL(take(), LORA_OK); /* a new table: it is found again */
    CHECK_EQUAL(completion().scrub.damaged, 0);
    CHECK_EQUAL(scrub(SIZE), LORA_OK); /* only the first */
    CHECK_EQUAL(completion().scrub.damaged, 0);
    CHECK_EQUAL(completion().scrub.bytes, SIZE);
    CHECK_EQUAL(scrub(SIZE), LORA_OK);
    CHECK_EQUAL(completion().scrub.damaged, 2);
    board_close();
}

/* A step earns one command, which runs once the step is done; the turn after it tells. */
static void test_between_steps(void) {
    fill();
    CHECK_EQUAL(take(), LORA_OK);
    run_step(1);
    CHECK_EQUAL(completion().scrub.sums, 0);
    CHECK_EQUAL(completion().scrub.good, 0);
    idle(20);
    CHECK_EQUAL(sums(), 1);
    for (uint32_t step = 2; step <= 13; step++) {
        run_step(step);
        CHECK_EQUAL(completion().scrub.sums, step - 1);
        idle(20);
    }
    run_step(14);
    CHECK_EQUAL(completion().scrub.passes, 1);
    CHECK_EQUAL(completion().scrub.good, 1); /* the turn began after step 1 */
    CHECK_EQUAL(region(0).good_step, 1);
    CHECK_EQUAL(region(1).good_step, 5); /* its first command ran after step 5 */
    CHECK_EQUAL(region(2).good_step, 9);
    board.banks[1][64] ^= 1;
    for (uint32_t step = 15; step <= 30; step++) {
        idle(20);
        run_step(step);
    }
    CHECK_EQUAL(completion().scrub.damaged, 2);
    CHECK_EQUAL(region(0).good_step, 13);
    CHECK_EQUAL(region(1).good_step, 5); /* as it was */
    CHECK_EQUAL(region(1).found, lora_crc32(0, board.banks[1] + 64, SIZE - 32));
    board_close();
}

/* What a command costs besides its bytes comes off what is earned. */
static void test_budget(void) {
    fill();
    header.command_bytes = SLICE;
    CHECK_EQUAL(take(), LORA_OK);
    for (uint32_t step = 1; step <= 11; step++) {
        run_step(step);
        idle(20);
    }
    CHECK_EQUAL(scrub(1), LORA_OK); /* tells; one more command was asked for */
    CHECK_EQUAL(completion().scrub.sums, 6 + 1);
    board_close();
}

static void test_without_steps(void) {
    fill();
    header.idle_bytes = SLICE;
    CHECK_EQUAL(take(), LORA_OK);
    board.log_count = 0;
    idle(20);
    CHECK_EQUAL(sums(), 0);
    control_pass(2 * CYCLES_PER_MS);
    idle(20);
    CHECK_EQUAL(sums(), 2);
    board_close();
}

/* Idle time that nobody used is not saved up for ever. */
static void test_saved_up(void) {
    fill();
    header.idle_bytes = SLICE;
    CHECK_EQUAL(take(), LORA_OK);
    board.log_count = 0;
    control_pass(100 * CYCLES_PER_MS);
    idle(50);
    CHECK_EQUAL(sums(), 4);
    board_close();
}

/* A DMA unit that hangs in a sum does not keep the next operation from beginning. */
static void test_stuck(void) {
    fill();
    header.idle_bytes = SLICE;
    CHECK_EQUAL(take(), LORA_OK);
    board.units[LORA_UNIT_DMA].stuck = 1;
    control_pass(CYCLES_PER_MS);
    idle(3);
    CHECK_EQUAL(board.units[LORA_UNIT_DMA].busy, 1);
    CHECK_EQUAL(operate(LORA_OP_IDENTIFY), LORA_OK);
    CHECK_EQUAL(board.aborted, 1u << LORA_UNIT_DMA);
    CHECK_EQUAL(completion().scrub.damaged, 0xffffffff);
    board_close();
}

/* A region of the table that was overwritten is not followed out of the arenas. */
static void test_spoilt_table(void) {
    const uint64_t far = 0x100000000;
    fill();
    CHECK_EQUAL(take(), LORA_OK);
    memcpy(board.banks[CONTROL] + TABLE + sizeof header, &far, sizeof far);
    CHECK_EQUAL(scrub(0), LORA_OK);
    CHECK_EQUAL(completion().scrub.damaged, 1);
    CHECK_EQUAL(completion().scrub.sums, 0);
    board_close();
}

static const struct test_case cases[] = {
    CASE(refusals),      CASE(all_at_once), CASE(between_steps), CASE(budget),
    CASE(without_steps), CASE(saved_up),    CASE(stuck),         CASE(spoilt_table),
};

int main(int argc, char **argv) { return RUN_CASES(cases, argc, argv); }

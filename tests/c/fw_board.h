/* A scripted board under the firmware: registers, banks of bytes, units that do what a test says.
 * Any access of the firmware outside of an arena ends the test. Include it in one test program. */
#ifndef TEST_FW_BOARD_H
#define TEST_FW_BOARD_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fw_cases.h"
#include "fw_control.h"
#include "hal.h"
#include "lora/abi.h"
#include "lora/transport.h"

#include "lora/host.h"

#define CHECK_EQUAL(found, expected)                                                               \
    do {                                                                                           \
        long long found_ = (long long)(found), expected_ = (long long)(expected);                  \
        if (found_ != expected_) {                                                                 \
            fprintf(stderr, "%s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #found,      \
                    found_, expected_);                                                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum {
    BANKS = 34,
    CONTROL = 32, /* DDR[0] */
    BANK_BYTES = 1 << 18,
    ONCHIP_BYTES = 1 << 16,
    STEP_AT = 0x1000,
    RESULTS_AT = 0x8000,
    RESULTS_BYTES = 0x4000,
    TABLE_AT = 0x10000,
    LOG = 4096
};

#define LIST_AT (0x3000 + control_shift())

struct started { /* one hal_unit_start */
    uint32_t unit, kv_first, kv_count, block;
    struct lora_command command;
};

struct scripted_unit {
    uint32_t busy, stuck;
    uint32_t delay;  /* cycles that a command takes */
    uint64_t ends;   /* when the one that runs is over */
    uint32_t status; /* of the next commands */
    struct lora_command command;
    struct hal_unit_result result;
};

static struct {
    uint32_t registers[0x1400 / 4];
    uint8_t *banks[BANKS];
    struct scripted_unit units[LORA_UNITS];
    uint32_t segments[LORA_SEGMENTS];
    struct {
        uint8_t *at;
        uint32_t bytes;
        uint8_t data[BANK_BYTES];
    } posted;                         /* the last write, which the host does not see yet */
    struct lora_router_record router; /* its fields that a unit fills */
    struct started log[LOG];
    uint32_t log_count;
    uint32_t aborted, poisoned, poison_epoch, poison_step, epoch; /* aborted: a bit a unit */
    uint32_t traced, link_polls, link_state;
    uint32_t large_bank; /* a bank that a test made larger than BANK_BYTES */
    uint32_t operations; /* so far */
    uint32_t list_sum;   /* of the list at LIST_AT as it was registered, with its arenas */
    uint32_t sums;       /* without an operation the firmware may have work */
    void (*on_start)(const struct lora_command *command, const struct lora_step_state *state);
    struct fw *fw;
} board;

/* Banks lie far apart in the card's addresses. */
static void set_arena(uint32_t i, uint32_t bank, uint64_t offset, uint64_t bytes) {
    uint64_t base = offset + ((uint64_t)(bank + 1) << 36);
    struct lora_arena_record record = {base, offset, bytes, bank, 1};
    memcpy((uint8_t *)board.registers + LORA_REG_ARENAS + i * sizeof record, &record,
           sizeof record);
    if (board.registers[LORA_REG_ARENA_COUNT / 4] < i + 1)
        board.registers[LORA_REG_ARENA_COUNT / 4] = i + 1;
}

static uint8_t *memory(uint32_t bank, uint64_t offset, uint32_t bytes) {
    struct lora_arena_record record;
    for (uint32_t i = 0; i < board.registers[LORA_REG_ARENA_COUNT / 4]; i++) {
        memcpy(&record, (uint8_t *)board.registers + LORA_REG_ARENAS + i * sizeof record,
               sizeof record);
        if (record.valid && record.bank == bank && offset >= record.offset &&
            offset + bytes <= record.offset + record.bytes) {
            CHECK(bank < BANKS && (bank == board.large_bank || offset + bytes <= BANK_BYTES));
            return board.banks[bank] + offset;
        }
    }
    fprintf(stderr, "access outside of the arenas: bank %u offset %#llx bytes %u\n", bank,
            (unsigned long long)offset, bytes);
    abort();
}

uint32_t hal_register(uint32_t offset) {
    CHECK(offset < sizeof board.registers && offset % 4 == 0);
    return board.registers[offset / 4];
}

static void arrive(void) {
    if (board.posted.bytes) memcpy(board.posted.at, board.posted.data, board.posted.bytes);
    board.posted.bytes = 0;
}

/* Where the host may look, all is there. */
void hal_set_register(uint32_t offset, uint32_t value) {
    CHECK(offset < sizeof board.registers && offset % 4 == 0);
    if (offset == LORA_REG_AP_CTRL || offset == LORA_REG_TOKEN) CHECK(!board.posted.bytes);
    board.registers[offset / 4] = value;
}

void hal_fence(uint32_t bank, uint64_t offset) {
    (void)memory(bank, offset, 4);
    arrive();
}

void hal_read(uint32_t bank, uint64_t offset, void *data, uint32_t bytes) {
    arrive();
    memcpy(data, memory(bank, offset, bytes), bytes);
}

void hal_write(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes) {
    CHECK(!(board.registers[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE) && bytes <= BANK_BYTES);
    arrive();
    board.posted.at = memory(bank, offset, bytes);
    board.posted.bytes = bytes;
    memcpy(board.posted.data, data, bytes);
}

uint32_t hal_onchip_bytes(void) { return ONCHIP_BYTES; }
uint32_t hal_features(void) { return 0; }
uint32_t hal_run_register(uint32_t offset) { return (void)offset, 0; }
void hal_set_run_register(uint32_t offset, uint32_t value) { (void)offset, (void)value; }
void hal_run_list(uint32_t bank, uint64_t offset, const struct lora_list *list,
                  const struct lora_step_state *state) {
    (void)bank, (void)offset, (void)list, (void)state;
}

void hal_unit_start(uint32_t unit, const struct lora_command *command, const struct lora_list *list,
                    const struct lora_step_state *state) {
    struct scripted_unit *entry = &board.units[unit];
    struct started *log = &board.log[board.log_count++];
    (void)list;
    arrive();
    CHECK(unit > 0 && unit < LORA_UNITS && !entry->busy && board.log_count < LOG);
    entry->busy = 1;
    entry->ends = control_cycles() + entry->delay;
    entry->command = *command;
    log->unit = unit;
    log->command = *command;
    log->kv_first = state->kv_ops_offset;
    log->kv_count = state->kv_op_count;
    log->block = state->block_offset;
    if (board.on_start) board.on_start(command, state);
}

uint32_t hal_unit_poll(uint32_t unit, struct hal_unit_result *result) {
    struct scripted_unit *entry = &board.units[unit];
    CHECK(entry->busy);
    if (entry->stuck || control_cycles() < entry->ends) return LORA_UNIT_BUSY;
    entry->busy = 0;
    *result = entry->result;
    result->status = entry->status;
    if (entry->command.opcode == LORA_CMD_CHECKSUM) {
        struct lora_checksum sum;
        memcpy(&sum, &entry->command, sizeof sum);
        result->value = lora_crc32(sum.crc, memory(sum.bank, sum.offset_lo, sum.bytes), sum.bytes);
    }
    return entry->status == LORA_OK ? LORA_UNIT_DONE : LORA_UNIT_FAILED;
}

void hal_unit_segments(uint32_t unit, uint32_t groups[LORA_SEGMENTS]) {
    CHECK_EQUAL(unit, LORA_UNIT_ROUTER);
    memcpy(groups, board.segments, sizeof board.segments);
}

void hal_router_progress(struct lora_router_record *record) {
    record->waits = board.router.waits;
    memcpy(record->sent, board.router.sent, sizeof record->sent);
    memcpy(record->received, board.router.received, sizeof record->received);
}

void hal_unit_abort(uint32_t unit) {
    CHECK(board.units[unit].busy);
    board.units[unit].busy = 0;
    board.aborted |= 1u << unit;
}

void hal_links_epoch(uint32_t epoch) { board.epoch = epoch; }

void hal_links_poison(const struct lora_list *list, const struct lora_step_state *state) {
    CHECK(list->boards > 1);
    board.poisoned++;
    board.poison_epoch = state->epoch;
    board.poison_step = state->step;
}

uint32_t hal_link_test(struct lora_link_test *test) {
    if (board.link_polls > 0) {
        board.link_polls--;
        return LORA_UNIT_BUSY;
    }
    if (board.link_state == LORA_UNIT_DONE)
        for (int p = 0; p < LORA_PORTS; p++) test->ports[p].received = test->frames;
    return board.link_state;
}

uint64_t hal_cycles(void) { return control_cycles(); }

uint32_t hal_cycles_per_ms(void) { return CYCLES_PER_MS; }

void hal_trace(uint32_t index, const struct lora_command *command, uint32_t rows, uint32_t end) {
    (void)index, (void)command, (void)rows;
    board.traced += end ? 1 : 0x10000;
}

/* --- the host's side -------------------------------------------------------------------------- */
static void board_open(void) {
    memset(&board, 0, sizeof board);
    for (uint32_t bank = 0; bank < BANKS; bank++) board.banks[bank] = calloc(1, BANK_BYTES);
    for (uint32_t bank = 0; bank < 4; bank++) set_arena(bank, bank, 0, BANK_BYTES);
    set_arena(4, CONTROL, 0, BANK_BYTES);
    board.registers[LORA_REG_CONTROL_BANK / 4] = CONTROL;
    board.registers[LORA_REG_WATCHDOG_MS / 4] = WATCHDOG_MS;
    board.link_state = LORA_UNIT_DONE;
    board.large_bank = BANKS;
    board.fw = malloc(fw_bytes());
    CHECK(fw_bytes() <= 48 * 1024);
    fw_reset(board.fw);
    CHECK_EQUAL(fw_poll(board.fw), LORA_FW_IDLE);
}

static void board_close(void) {
    for (uint32_t bank = 0; bank < BANKS; bank++) free(board.banks[bank]);
    free(board.fw);
}

static struct lora_completion completion(void) {
    struct lora_completion record;
    memcpy(&record, board.banks[CONTROL] + LORA_COMPLETION_OFFSET, sizeof record);
    return record;
}

static struct lora_error_record error_record(void) {
    struct lora_error_record record;
    memcpy(&record, board.banks[CONTROL] + LORA_ERROR_OFFSET, sizeof record);
    return record;
}

static uint32_t list_sum(void) {
    uint32_t sum = lora_crc32(0, board.banks[CONTROL] + LIST_AT, RESULTS_AT - LIST_AT);
    return lora_crc32(sum, board.registers + LORA_REG_ARENAS / 4, 6 * 32);
}

static void begin_operation(uint32_t operation) {
    memset(board.banks[CONTROL], 0xee, 0x100);
    board.registers[LORA_REG_OPERATION / 4] = operation;
    board.registers[LORA_REG_AP_CTRL / 4] = LORA_AP_START;
}

/* One slice of the control's work. */
static uint32_t board_poll(void) {
    if (!SIMULATED) control_pass(POLL_CYCLES);
    return fw_poll(board.fw);
}

static void cut_off(uint32_t operation);

/* Starts an operation; the returned status is the completion record's. */
static uint32_t operate(uint32_t operation) {
    uint64_t began = control_cycles();
    uint32_t state;
    cut_off(operation);
    board.operations++;
    begin_operation(operation);
    do {
        CHECK(!(board.registers[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE));
        state = board_poll();
        CHECK(control_cycles() - began < 1000000000ull);
    } while (state == LORA_FW_RUNNING || state == LORA_FW_WAITING);
    CHECK_EQUAL(board.registers[LORA_REG_AP_CTRL / 4], LORA_AP_DONE | LORA_AP_IDLE | LORA_AP_READY);
    CHECK_EQUAL(completion().size, sizeof(struct lora_completion));
    CHECK_EQUAL(completion().operation, operation);
    CHECK_EQUAL(completion().status, error_record().code);
    CHECK_EQUAL(state, completion().status == LORA_OK ? LORA_FW_DONE : LORA_FW_ERROR);
    CHECK_EQUAL(board.registers[LORA_REG_FIRMWARE_STATE / 4], state);
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) CHECK(!board.units[unit].busy);
    if (!board.sums) CHECK_EQUAL(fw_poll(board.fw), LORA_FW_IDLE);
    if (operation == LORA_OP_REGISTER && completion().status == LORA_OK)
        board.list_sum = list_sum();
    return completion().status;
}

#include "fw_cut_off.h"

#endif

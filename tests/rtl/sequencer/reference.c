#include "reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fw.h"

enum { CONTROL_BANK = 7, LIST_AT = 0x2000, PAGE = LORA_CONTROL_PAGE };

static struct fw fw;
static const struct test_run *run;
static uint32_t outcome, votes, poisoned, registers[0x400 / 4];
static uint64_t cycles;
static struct test_start starts[LORA_UNITS][LORA_MAX_COMMANDS];
static uint32_t start_count[LORA_UNITS];
static struct {
    uint32_t state;
    struct hal_unit_result result;
} units[LORA_UNITS];
static uint32_t segments[LORA_SEGMENTS];

/* --- the board under it ----------------------------------------------------------------------- */
uint32_t hal_register(uint32_t offset) { return registers[offset / 4]; }
void hal_set_register(uint32_t offset, uint32_t value) { registers[offset / 4] = value; }
uint32_t hal_onchip_bytes(void) { return 1 << 16; }
uint32_t hal_features(void) { return 0; }
uint32_t hal_run_register(uint32_t offset) { return (void)offset, 0; }
void hal_set_run_register(uint32_t offset, uint32_t value) { (void)offset, (void)value; }
void hal_run_list(uint32_t bank, uint64_t offset, const struct lora_list *list,
                  const struct lora_step_state *state) {
    (void)bank, (void)offset, (void)list, (void)state;
}
uint64_t hal_cycles(void) { return cycles; }
uint32_t hal_cycles_per_ms(void) { return 1000; }
void hal_links_epoch(uint32_t epoch) { (void)epoch; }
void hal_fence(uint32_t bank, uint64_t offset) { (void)bank, (void)offset; }
void hal_router_progress(struct lora_router_record *record) { (void)record; }
uint32_t hal_link_test(struct lora_link_test *test) { return (void)test, LORA_UNIT_FAILED; }

void hal_links_poison(const struct lora_list *list, const struct lora_step_state *state) {
    (void)list, (void)state;
    poisoned++;
}

void hal_read(uint32_t bank, uint64_t offset, void *data, uint32_t bytes) {
    uint64_t at = LIST_AT + sizeof(struct lora_list);
    memset(data, 0, bytes);
    if (bank == CONTROL_BANK && offset >= at)
        memcpy(data, (const uint8_t *)run->commands + (offset - at), bytes);
}

void hal_write(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes) {
    (void)bank, (void)data;
    if (offset >= PAGE && bytes == sizeof(struct lora_vote)) votes++;
}

void hal_trace(uint32_t index, const struct lora_command *command, uint32_t rows, uint32_t end) {
    if (end) return;
    starts[command->unit][start_count[command->unit]++] = (struct test_start){index, rows};
}

void hal_unit_start(uint32_t unit, const struct lora_command *command, const struct lora_list *list,
                    const struct lora_step_state *state) {
    (void)command, (void)list, (void)state;
    units[unit].state = LORA_UNIT_BUSY;
    if (unit == LORA_UNIT_ROUTER) memset(segments, 0, sizeof segments);
}

uint32_t hal_unit_poll(uint32_t unit, struct hal_unit_result *result) {
    *result = units[unit].result;
    return units[unit].state;
}

void hal_unit_segments(uint32_t unit, uint32_t groups[LORA_SEGMENTS]) {
    (void)unit;
    memcpy(groups, segments, sizeof segments);
}

void hal_unit_abort(uint32_t unit) { units[unit].state = LORA_UNIT_IDLE; }

/* --- runs ------------------------------------------------------------------------------------- */
/* As REGISTER does it: within the window, and by itself until the end or a stall. */
static void run_dry(void) {
    uint32_t found = FW_MORE;
    fw.dry_run_groups = fw.dry_run_selected = fw_row_groups(fw.list->header.max_rows);
    while (found == FW_MORE) found = fw_register_dry_run(&fw);
    outcome = found == FW_OVER ? TEST_DONE : TEST_FAILED;
}

static void settle(void) {
    uint32_t found, events;
    if (outcome != TEST_WAITING) return;
    do { /* segments raise counters in a sweep that moves nothing: the next one sees them */
        events = fw.events;
        found = fw_dispatch(&fw);
    } while (found == FW_MORE || (found == FW_WAITING && events != fw.events));
    if (found == FW_WAITING) return;
    outcome = found == FW_OVER ? TEST_DONE : TEST_FAILED;
    fw_complete(&fw);
}

void reference_begin(const struct test_run *new_run) {
    run = new_run;
    memset(&fw, 0, sizeof fw);
    memset(units, 0, sizeof units);
    memset(start_count, 0, sizeof start_count);
    memset(registers, 0, sizeof registers);
    outcome = TEST_WAITING;
    votes = poisoned = 0;
    cycles = 0;
    fw.booted = 1;
    fw.control_bank = CONTROL_BANK;
    fw.operation = run->dry ? LORA_OP_REGISTER : LORA_OP_STEP;
    fw.phase = run->dry ? FW_PHASE_DRY_RUN : FW_PHASE_RUN;
    fw.accepted = 1;
    fw.state.step = 1;
    fw.state.kv_op_count = run->moves_kv;
    fw.completion.nonfinite_index = fw.completion.nonfinite_row = FW_NONE;
    fw.list = &fw.lists[0];
    fw.list->offset = LIST_AT;
    fw.list->header.command_count = run->command_count;
    fw.list->header.counter_count = run->counter_count;
    fw.list->header.boards = (uint8_t)run->boards;
    fw.list->header.max_rows = LORA_MAX_ROWS;
    for (uint32_t chunk = 0; chunk * FW_CHUNK_COMMANDS < run->command_count; chunk++)
        fw.list->seal[chunk] = fw_seal(&run->commands[chunk * FW_CHUNK_COMMANDS],
                                       fw_chunk_commands(fw.list, chunk) * FW_COMMAND_BYTES / 4);
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++)
        registers[LORA_REG_LAST_INDEX / 4 + unit] = FW_NONE;
    fw_blame_none(&fw);
    fw_execution_reset(&fw, run->rows, run->selected, !run->dry);
    if (run->dry) run_dry();
    else settle();
}

void reference_result(uint32_t unit, uint32_t state, const struct hal_unit_result *result) {
    units[unit].state = state;
    units[unit].result = *result;
    settle();
}

void reference_segments(const uint32_t groups[LORA_SEGMENTS]) {
    memcpy(segments, groups, sizeof segments);
    settle();
}

int reference_expire(uint64_t before, uint64_t at, uint64_t limit) {
    int early;
    fw.timeout = limit;
    cycles = before;
    early = (int)fw_watchdog_expired(&fw);
    cycles = at;
    if (early || !fw_watchdog_expired(&fw)) return 0;
    fw_blame_stall(&fw);
    fw_fail(&fw, LORA_ERR_WATCHDOG, fw.error.found, fw.error.expected);
    outcome = TEST_FAILED;
    fw_complete(&fw);
    return 1;
}

uint32_t reference_outcome(void) { return outcome; }
uint32_t reference_votes(void) { return votes; }
uint32_t reference_poisoned(void) { return poisoned; }
uint32_t reference_counter(uint32_t counter) { return fw.counters[counter]; }
uint32_t reference_register(uint32_t offset) { return registers[offset / 4]; }
struct lora_error_record reference_error(void) { return fw.error; }
struct lora_completion reference_completion(void) { return fw.completion; }

const struct test_start *reference_start(uint32_t unit, uint32_t n) {
    return n < start_count[unit] ? &starts[unit][n] : 0;
}

uint32_t reference_seal(const void *data, uint32_t bytes) { return fw_seal(data, bytes / 4); }

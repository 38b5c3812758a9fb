/* The HAL in the emulated board. Which board: bound by the scheduler before each fw_poll. */
#include "hal.h"

#include <setjmp.h>
#include <stddef.h>
#include <string.h>

#include "board.h"

/* initial-exec: read on every HAL call, so no call of the loader's to find it. */
static _Thread_local struct emu_board *current __attribute__((tls_model("initial-exec")));

static _Thread_local jmp_buf stopped;

void emu_hal_bind(struct emu_board *board) { current = board; }

struct emu_board *emu_hal_board(void) { return current; }

jmp_buf *emu_hal_stop(void) { return &stopped; }

struct emu_port *emu_hal_port(uint32_t index) { return &current->ports[index]; }

/* The emulated board has no sequencer: the firmware dispatches, by the same rules. */
uint32_t hal_features(void) { return 0; }
uint32_t hal_run_register(uint32_t offset) { return (void)offset, 0; }
void hal_set_run_register(uint32_t offset, uint32_t value) { (void)offset, (void)value; }
void hal_run_list(uint32_t bank, uint64_t offset, const struct lora_list *list,
                  const struct lora_step_state *state) {
    (void)bank, (void)offset, (void)list, (void)state;
}

uint32_t hal_register(uint32_t offset) {
    return offset < EMU_CONTROL_BYTES ? current->control[offset / 4] : 0;
}

/* The firmware may write every register; a lost done bit is lost on its way to the host. A record
 * that is still on its way to memory when the host may look is not there for it. */
void hal_set_register(uint32_t offset, uint32_t value) {
    if (offset >= EMU_CONTROL_BYTES) return;
    if (offset == LORA_REG_AP_CTRL || offset == LORA_REG_TOKEN) current->posted.bytes = 0;
    if (offset == LORA_REG_AP_CTRL && current->done_lost) value &= ~(uint32_t)LORA_AP_DONE;
    current->control[offset / 4] = value;
}

/* The last write is on its way until something follows it there. */
static void arrive(void) {
    struct emu_posted *posted = &current->posted;
    if (posted->bytes) memcpy(posted->at, posted->data, posted->bytes);
    posted->bytes = 0;
}

void hal_fence(uint32_t bank, uint64_t offset) {
    (void)bank, (void)offset;
    arrive();
}

/* A range outside the arenas reads as zeros and takes no writes, as an AXI decode error would. */
static bool read_range(uint32_t bank, uint64_t offset, void *data, uint32_t bytes) {
    const uint8_t *at = emu_memory_at(&current->memory, bank, offset, bytes);
    arrive();
    if (at) memcpy(data, at, bytes);
    else memset(data, 0, bytes);
    return at;
}

static bool damaged(uint32_t bank, uint64_t offset, uint32_t bytes) {
    return emu_ecc_any(&current->ecc) && emu_ecc_read(current, bank, offset, bytes);
}

void hal_read(uint32_t bank, uint64_t offset, void *data, uint32_t bytes) {
    read_range(bank, offset, data, bytes);
    if (!damaged(bank, offset, bytes)) return;
    current->core_stopped = true;
    longjmp(stopped, 1);
}

bool emu_hal_reads(uint32_t bank, uint64_t offset, void *data, uint32_t bytes) {
    return read_range(bank, offset, data, bytes) && !damaged(bank, offset, bytes);
}

static bool completion_is_lost(uint32_t bank, uint64_t offset) {
    bool lost = current->completion_lost || current->done_lost;
    return lost && bank == current->control[LORA_REG_CONTROL_BANK / 4] &&
           offset < LORA_COMPLETION_OFFSET + sizeof(struct lora_completion);
}

/* What the posted bytes, which go to `offset`, hold of a record's word. */
static void age_word(uint64_t offset, uint64_t word, uint32_t lag) {
    struct emu_posted *posted = &current->posted;
    uint32_t value;
    if (word < offset || word + sizeof value > offset + posted->bytes) return;
    memcpy(&value, posted->data + (word - offset), sizeof value);
    value -= lag;
    memcpy(posted->data + (word - offset), &value, sizeof value);
}

/* Fault: the completion record is that of an earlier step or epoch. Simulated cards write it by
 * words. */
static void age_record(uint32_t bank, uint64_t offset) {
    const struct emu_control_faults *faults = &current->control_faults;
    uint64_t record = LORA_COMPLETION_OFFSET;
    bool beyond = offset >= record + sizeof(struct lora_completion);
    if (beyond || bank != current->control[LORA_REG_CONTROL_BANK / 4]) return;
    age_word(offset, record + offsetof(struct lora_completion, step), faults->record_steps);
    age_word(offset, record + offsetof(struct lora_completion, epoch), faults->record_epochs);
}

bool emu_hal_writes(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes) {
    if (!emu_memory_at(&current->memory, bank, offset, bytes)) return false;
    hal_write(bank, offset, data, bytes);
    arrive(); /* a card's memory answers a write when it is there */
    return true;
}

void hal_write(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes) {
    uint8_t *at = emu_memory_at(&current->memory, bank, offset, bytes);
    arrive();
    if (!at || completion_is_lost(bank, offset)) return;
    if (emu_ecc_any(&current->ecc)) emu_ecc_written(current, bank, offset, bytes);
    if (current->control[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE) return; /* the host has looked */
    if (bytes > sizeof current->posted.data) {
        memcpy(at, data, bytes);
        return;
    }
    current->posted.at = at;
    current->posted.bytes = bytes;
    memcpy(current->posted.data, data, bytes);
    age_record(bank, offset);
}

uint32_t hal_onchip_bytes(void) { return (uint32_t)current->memory.bytes[LORA_BANK_ONCHIP]; }

void hal_unit_start(uint32_t unit, const struct lora_command *command, const struct lora_list *list,
                    const struct lora_step_state *state) {
    arrive();
    emu_unit_start(current, unit, command, list, state);
}

uint32_t hal_unit_poll(uint32_t unit, struct hal_unit_result *result) {
    return emu_unit_poll(current, unit, result);
}

void hal_unit_segments(uint32_t unit, uint32_t groups[LORA_SEGMENTS]) {
    memset(groups, 0, LORA_SEGMENTS * sizeof groups[0]);
    if (unit == LORA_UNIT_ROUTER && current->router.plan)
        memcpy(groups, current->router.groups_done, sizeof current->router.groups_done);
}

void hal_router_progress(struct lora_router_record *record) {
    emu_router_progress(&current->router, record);
}

void hal_unit_abort(uint32_t unit) { emu_unit_abort(current, unit); }

void hal_links_epoch(uint32_t epoch) {
    current->link_requests.drop = true;
    current->link_requests.drop_before = epoch;
}

void hal_links_poison(const struct lora_list *list, const struct lora_step_state *state) {
    current->link_requests.poison = true;
    current->link_requests.port_next = list->port_next;
    current->link_requests.port_previous = list->port_previous;
    current->link_requests.rank = list->rank;
    current->link_requests.epoch = state->epoch;
    current->link_requests.step = state->step;
}

uint32_t hal_link_test(struct lora_link_test *test) {
    if (!current->concurrent) return emu_link_test_slice(current, test);
    current->link_requests.link_test = true;
    return LORA_UNIT_BUSY;
}

uint64_t hal_cycles(void) { return current->clock + current->control_faults.clock_ahead; }

uint32_t hal_cycles_per_ms(void) { return current->cluster->clock_hz / 1000; }

void hal_trace(uint32_t index, const struct lora_command *command, uint32_t rows, uint32_t end) {
    if (current->trace.capacity) emu_trace_mark(current, index, command, rows, end);
}

/* A step's list on the board's sequencer: its numbers go there, records and the first failure come
 * back. Which checks are whose: docs/sequencer.md. */
#include "fw.h"

/* Its registers count lines. */
int fw_has_sequencer(const struct fw *fw) {
    return (fw->features & HAL_FEATURE_RUN) && fw->list->offset % LORA_LINE_BYTES == 0;
}

void fw_sequence_seal(const struct fw *fw, uint32_t chunk) {
    if (!(fw->features & HAL_FEATURE_RUN)) return;
    hal_set_run_register(HAL_RUN_SEAL_AT, (uint32_t)(fw->list - fw->lists) * FW_CHUNKS + chunk);
    hal_set_run_register(HAL_RUN_SEAL, fw->list->seal[chunk]);
}

static void set_limit(uint32_t offset, uint64_t limit, uint64_t spent) {
    uint64_t left = limit > spent ? limit - spent : 0;
    hal_set_run_register(offset, (uint32_t)left);
    hal_set_run_register(offset + 4, (uint32_t)(left >> 32));
}

/* As fw_watchdog_expired says. */
static void set_limits(const struct fw *fw) {
    uint64_t spent = hal_cycles() - fw->started;
    set_limit(HAL_RUN_LOCAL_LO, fw->timeout - (fw->timeout >> 2), spent);
    set_limit(HAL_RUN_REMOTE_LO, fw->timeout, spent);
}

static uint32_t flags_of(const struct fw *fw) {
    const struct lora_list *list = &fw->list->header;
    uint32_t flags = fw->list == &fw->lists[1] ? HAL_RUN_LIST_ID : 0;
    if (fw->state.kv_op_count) flags |= HAL_RUN_MOVES_KV;
    if (list->boards > 1) flags |= HAL_RUN_POISONS;
    if (fw->rows && (list->boards > 1 || fw->operation == LORA_OP_GENERATE)) flags |= HAL_RUN_VOTES;
    return flags;
}

static void begin(struct fw *fw) {
    const struct lora_list *list = &fw->list->header;
    hal_run_list(fw->control_bank, (uint64_t)fw->list->offset + sizeof *list, list, &fw->state);
    hal_set_run_register(HAL_RUN_ROWS, fw->rows | fw->selected << 8 | flags_of(fw) << 16);
    hal_set_run_register(HAL_RUN_COUNTS, list->command_count | (uint32_t)list->counter_count << 16);
    set_limits(fw);
    hal_set_run_register(HAL_RUN_CONTROL, HAL_RUN_START);
    fw->sequencer = FW_SEQUENCER_RUNS;
}

/* How far each unit is, for the host. */
static void show_progress(struct fw *fw) {
    uint32_t states = hal_run_register(HAL_RUN_STATES);
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++, states >>= 2) {
        struct fw_cursor *cursor = &fw->cursors[unit];
        cursor->index = hal_run_register(HAL_RUN_LAST_INDEX + 4 * unit);
        hal_set_register(LORA_REG_LAST_INDEX + 4 * unit, cursor->index);
        hal_set_register(LORA_REG_UNIT_STATE + 4 * unit, states & 3);
    }
}

static void take_counts(struct fw *fw) {
    uint32_t count = hal_run_register(HAL_RUN_NONFINITE);
    fw->digest = hal_run_register(HAL_RUN_DIGEST);
    fw->first_sum = hal_run_register(HAL_RUN_FIRST_SUM);
    fw->last_sum = hal_run_register(HAL_RUN_LAST_SUM);
    if (!count) return;
    fw->completion.nonfinite_count = count;
    fw->completion.nonfinite_index = hal_run_register(HAL_RUN_NONFINITE + 4);
    fw->completion.nonfinite_row = hal_run_register(HAL_RUN_NONFINITE + 8);
}

static void finish(struct fw *fw) {
    fw->completion.frames_sent += hal_run_register(HAL_RUN_FRAMES);
    fw->completion.frames_received += hal_run_register(HAL_RUN_FRAMES + 4);
    fw->completion.frames_dropped += hal_run_register(HAL_RUN_FRAMES + 8);
    take_counts(fw);
    show_progress(fw);
}

/* The router's record names its gather: the command of one that was stopped. */
static void load_stopped_gather(struct fw *fw) {
    struct fw_cursor *cursor = &fw->cursors[LORA_UNIT_ROUTER];
    uint32_t state = hal_run_register(HAL_RUN_STATES) >> 2 * LORA_UNIT_ROUTER & 3;
    if (state != LORA_UNIT_FAILED) return;
    hal_read(fw->control_bank,
             (uint64_t)fw->list->offset + sizeof(struct lora_list) +
                 (uint64_t)cursor->index * FW_COMMAND_BYTES,
             &cursor->command, sizeof cursor->command);
    cursor->loaded = 1;
    if (fw->error.unit != LORA_UNIT_ROUTER) cursor->state = LORA_UNIT_BUSY;
}

static uint32_t fail(struct fw *fw) {
    fw->error.index = hal_run_register(HAL_RUN_BLAME + 4);
    fw->error.opcode = hal_run_register(HAL_RUN_BLAME + 8);
    fw->error.unit = hal_run_register(HAL_RUN_BLAME + 12);
    fw->error.counter = hal_run_register(HAL_RUN_BLAME + 24);
    fw->error.port = hal_run_register(HAL_RUN_BLAME + 28);
    fw->poisoned = 1;
    load_stopped_gather(fw);
    return fw_fail(fw, hal_run_register(HAL_RUN_BLAME), hal_run_register(HAL_RUN_BLAME + 16),
                   hal_run_register(HAL_RUN_BLAME + 20));
}

static uint32_t outcome_of(struct fw *fw, uint32_t state) {
    if (state & HAL_RUN_FAILED) {
        finish(fw);
        return fail(fw);
    }
    if (!(state & HAL_RUN_BUSY)) {
        finish(fw);
        return FW_OVER;
    }
    if (state & HAL_RUN_BALLOT) {
        take_counts(fw);
        fw_vote(fw, &fw->list->ballot_command);
        hal_set_run_register(HAL_RUN_CONTROL, HAL_RUN_VOTED);
    } else {
        show_progress(fw);
    }
    return FW_WAITING;
}

uint32_t fw_sequence(struct fw *fw) {
    uint32_t state = hal_run_register(HAL_RUN_CONTROL);
    if (fw->sequencer == FW_SEQUENCER_RUNS) return outcome_of(fw, state);
    if (state & HAL_RUN_BUSY) return FW_WAITING;
    begin(fw);
    return FW_WAITING;
}

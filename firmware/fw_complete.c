/* The end of a run: error record, completion record, a fence, then the done bit. */
#include "fw.h"

uint64_t fw_timeout(void) {
    uint32_t ms = hal_register(LORA_REG_WATCHDOG_MS);
    return (uint64_t)(ms ? ms : FW_WATCHDOG_DEFAULT_MS) * hal_cycles_per_ms();
}

/* A step or link test ends within the timeout that the host has set. One that only waits for
 * another board has all of it. A fault of this board is reported at three quarters of it: the
 * neighbours then fail by poison before their own timeout, and one board is named. Registration and
 * sums take as long as they make progress. */
uint32_t fw_watchdog_expired(const struct fw *fw) {
    uint64_t limit = fw->timeout, since = fw->started, now = hal_cycles();
    int remote = fw->phase == FW_PHASE_LINK_TEST;
    if (fw->phase == FW_PHASE_RUN && fw->sequencer == FW_SEQUENCER_RUNS) return 0; /* it does */
    if (now - since <= limit - (limit >> 2)) return 0;
    if (fw->operation == LORA_OP_REGISTER || fw->operation == LORA_OP_CHECKSUM ||
        fw->operation == LORA_OP_REGIONS || fw->operation == LORA_OP_SCRUB)
        since = fw->progressed;
    if (fw->phase == FW_PHASE_RUN) {
        remote = fw->cursors[LORA_UNIT_ROUTER].state == LORA_UNIT_BUSY;
        for (uint32_t unit = LORA_UNIT_MPU; unit < LORA_UNITS; unit++)
            if (unit != LORA_UNIT_ROUTER && fw->cursors[unit].state == LORA_UNIT_BUSY) remote = 0;
    }
    if (!remote) limit -= limit >> 2;
    return now - since > limit;
}

static uint32_t is_late(const struct fw *fw) {
    return fw->error.code == LORA_ERR_WATCHDOG || fw->error.code == LORA_ERR_LINK_POISON;
}

/* A Router that failed by poison is idle, but its command is still loaded. */
static void fill_router_record(const struct fw *fw, struct lora_router_record *record) {
    const struct fw_cursor *cursor = &fw->cursors[LORA_UNIT_ROUTER];
    fw_zero(record, sizeof *record);
    record->size = sizeof *record;
    record->step = fw->completion.step;
    if (!fw->accepted || !cursor->loaded) return;
    if (cursor->state != LORA_UNIT_BUSY && fw->error.unit != LORA_UNIT_ROUTER) return;
    hal_router_progress(record);
    record->collective = ((const struct lora_gather *)(const void *)&cursor->command)->collective;
    record->begun = 1;
}

/* Before units are aborted. */
static void write_router_record(struct fw *fw) {
    struct lora_router_record record;
    if (!is_late(fw) || !fw_in_arena(fw, fw->control_bank, 0, LORA_CONTROL_PAGE)) return;
    fill_router_record(fw, &record);
    hal_write(fw->control_bank, LORA_ROUTER_OFFSET, &record, sizeof record);
}

static void write_records(struct fw *fw) {
    if (!fw_in_arena(fw, fw->control_bank, 0, LORA_CONTROL_PAGE)) return;
    hal_write(fw->control_bank, LORA_ERROR_OFFSET, &fw->error, sizeof fw->error);
    hal_write(fw->control_bank, LORA_COMPLETION_OFFSET, &fw->completion, sizeof fw->completion);
    hal_fence(fw->control_bank, LORA_COMPLETION_OFFSET);
}

/* The tables are now as before the step: it is the next one again, even if it had been done
 * once. */
static void end_failed_step(struct fw *fw) {
    if (!fw->accepted) return;
    if (fw->behind.valid) fw_generate_restore(fw);
    else fw_tables_restore(fw);
    fw->last_step = fw->state.step - 1;
    if (fw->list->header.boards > 1 && !fw->poisoned)
        hal_links_poison(&fw->list->header, &fw->state);
}

static void end_good_step(struct fw *fw) {
    if (fw->behind.valid) fw_generate_finish(fw);
    fw->last_step = fw->state.step;
    fw->last_epoch = fw->state.epoch;
    fw_scrub_earn(fw);
}

/* fw->error.code tells how the run ended. */
void fw_complete(struct fw *fw) {
    write_router_record(fw);
    if (fw->error.code != LORA_OK) {
        fw_units_abort(fw);
        fw_scrub_restart(fw);
    }
    if (fw->operation == LORA_OP_STEP || fw->operation == LORA_OP_GENERATE) {
        if (fw->error.code != LORA_OK) end_failed_step(fw);
        else end_good_step(fw);
    }
    fw_scrub_complete(fw);
    if (fw->error.code == LORA_OK) fw_blame_none(fw);
    fw->completion.status = fw->error.code;
    fw->completion.cycles = hal_cycles() - fw->run_started;
    fw->completion.tokens = fw->token_count;
    write_records(fw);
    fw->phase = FW_PHASE_IDLE;
    hal_set_register(LORA_REG_LAST_STEP, fw->last_step);
    if (fw->operation == LORA_OP_GENERATE)
        hal_set_register(LORA_REG_TOKEN, hal_register(LORA_REG_TOKEN) | LORA_TOKEN_OVER);
    hal_set_register(LORA_REG_FIRMWARE_STATE,
                     fw->error.code == LORA_OK ? LORA_FW_DONE : LORA_FW_ERROR);
    hal_set_register(LORA_REG_AP_CTRL, LORA_AP_DONE | LORA_AP_IDLE | LORA_AP_READY);
}

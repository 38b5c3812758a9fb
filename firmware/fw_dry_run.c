/* REGISTER: a list's counters without the units, which finish at once. Counters only rise, so if a
 * dry run reaches END, every live run with as many row groups does. */
#include "fw.h"

/* Where the window of a card's sequencer ends: a dry run keeps to it on every board, so that what
 * passes here runs there as well. */
static uint32_t window_end(const struct fw *fw) {
    uint32_t oldest = fw->cursors[LORA_UNIT_CONTROL].index, end;
    for (uint32_t unit = LORA_UNIT_MPU; unit < LORA_UNITS; unit++)
        if (fw->cursors[unit].index < oldest) oldest = fw->cursors[unit].index;
    end = (oldest / FW_CHUNK_COMMANDS + LORA_WINDOW_CHUNKS) * FW_CHUNK_COMMANDS;
    return end < fw->list->header.command_count ? end : fw->list->header.command_count;
}

static uint32_t dispatch(struct fw *fw) {
    uint32_t end = fw->end = window_end(fw), outcome;
    fw->events++; /* units that stopped at the window's end look again */
    outcome = fw_dispatch(fw);
    return outcome == FW_WAITING && window_end(fw) > end ? (uint32_t)FW_MORE : outcome;
}

/* All numbers of row groups that a step can have, of all rows and of the selected ones. */
uint32_t fw_register_dry_run(struct fw *fw) {
    uint32_t outcome = dispatch(fw);
    if (outcome == FW_FAILED || outcome == FW_MORE) return outcome;
    if (outcome == FW_WAITING) {
        fw_blame_stall(fw);
        return fw_fail(fw, LORA_ERR_COUNTER, fw->error.found, fw->error.expected);
    }
    if (fw->dry_run_selected < fw->dry_run_groups) {
        fw->dry_run_selected++;
    } else if (fw->dry_run_groups < fw_row_groups(fw->list->header.max_rows)) {
        fw->dry_run_groups++;
        fw->dry_run_selected = 0;
    } else {
        fw_register_finish(fw);
        return FW_OVER;
    }
    fw_execution_reset(fw, fw->dry_run_groups * LORA_ROW_GROUP,
                       fw->dry_run_selected * LORA_ROW_GROUP, 0);
    return FW_MORE;
}

/* One command on one unit: start, poll, results into the completion record. */
#include "fw.h"

void fw_unit_begin(struct fw *fw, uint32_t unit) {
    struct fw_cursor *cursor = &fw->cursors[unit];
    cursor->state = LORA_UNIT_BUSY;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) cursor->groups[s] = 0;
    hal_set_register(LORA_REG_LAST_INDEX + 4 * unit, cursor->index);
    hal_set_register(LORA_REG_UNIT_STATE + 4 * unit, LORA_UNIT_BUSY);
    hal_trace(cursor->index, &cursor->command, cursor->rows, 0);
    hal_unit_start(unit, &cursor->command, &fw->list->header, &fw->state);
}

/* The first non-finite value is the first in command order, not in time. */
static void take_nonfinite(struct lora_completion *completion, uint32_t index,
                           const struct hal_unit_result *result) {
    if (completion->nonfinite_count == 0 || index < completion->nonfinite_index) {
        completion->nonfinite_index = index;
        completion->nonfinite_row = result->nonfinite_row;
    }
    completion->nonfinite_count += result->nonfinite_count;
}

static void take_sum(struct fw *fw, uint32_t sum) {
    fw->digest = fw_digest(fw->digest, sum);
    if (fw->gathers++ == 0) fw->first_sum = sum;
    fw->last_sum = sum;
}

uint32_t fw_unit_poll(struct fw *fw, uint32_t unit, struct hal_unit_result *result) {
    struct fw_cursor *cursor = &fw->cursors[unit];
    uint32_t state = hal_unit_poll(unit, result);
    if (state == LORA_UNIT_BUSY) return FW_WAITING;
    cursor->state = LORA_UNIT_IDLE;
    hal_set_register(LORA_REG_UNIT_STATE + 4 * unit, state);
    if (state == LORA_UNIT_IDLE) fw_zero(result, sizeof *result); /* it has lost the command */
    fw->completion.frames_sent += result->frames_sent;
    fw->completion.frames_received += result->frames_received;
    fw->completion.frames_dropped += result->frames_dropped;
    hal_trace(cursor->index, &cursor->command, cursor->rows, 1);
    if (state != LORA_UNIT_DONE || result->status != LORA_OK) {
        uint32_t code = result->status == LORA_OK ? (uint32_t)LORA_ERR_UNIT : result->status;
        fw_blame(fw, cursor->index, &cursor->command);
        fw->error.unit = unit;
        if (code >= LORA_ERR_LINK_DOWN && code <= LORA_ERR_LINK_POISON)
            fw->error.port = result->port;
        return fw_fail(fw, code, state, LORA_UNIT_DONE);
    }
    if (unit == LORA_UNIT_ROUTER) take_sum(fw, result->value);
    if (result->nonfinite_count) take_nonfinite(&fw->completion, cursor->index, result);
    return FW_OVER;
}

void fw_units_abort(struct fw *fw) {
    for (uint32_t unit = LORA_UNIT_MPU; unit < LORA_UNITS; unit++) {
        if (fw->cursors[unit].state == LORA_UNIT_BUSY) {
            hal_unit_abort(unit);
            fw->cursors[unit].state = LORA_UNIT_IDLE;
            hal_set_register(LORA_REG_UNIT_STATE + 4 * unit, LORA_UNIT_FAILED);
        }
    }
}

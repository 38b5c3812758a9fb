/* Counters between units: they start a run at zero and only rise. */
#include "fw.h"

void fw_run_reset(struct fw *fw, uint32_t rows, uint32_t selected, uint32_t live) {
    fw->rows = rows;
    fw->selected = selected;
    fw->live = live;
    fw->events = 1;
    fw->end = fw->list->header.command_count;
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) {
        fw->cursors[unit].index = 0;
        fw->cursors[unit].loaded = 0;
        fw->cursors[unit].seen_events = 0;
        fw->cursors[unit].state = LORA_UNIT_IDLE;
    }
}

void fw_execution_reset(struct fw *fw, uint32_t rows, uint32_t selected, uint32_t live) {
    fw_run_reset(fw, rows, selected, live);
    fw_zero(fw->counters, fw->list->header.counter_count * (uint32_t)sizeof fw->counters[0]);
    fw_fetch_reset(fw);
}

uint32_t fw_command_rows(const struct fw *fw, const struct lora_command *command) {
    if (command->flags & LORA_FLAG_VOTES) return fw->rows != 0;
    return command->flags & (LORA_FLAG_SELECTED | LORA_FLAG_PACK) ? fw->selected : fw->rows;
}

uint32_t fw_row_groups(uint32_t rows) { return (rows + LORA_ROW_GROUP - 1) / LORA_ROW_GROUP; }

uint32_t fw_missing_counter(const struct fw *fw, const struct lora_command *command,
                            uint32_t rows) {
    uint32_t value = command->wait_value;
    uint32_t count = command->flags & LORA_FLAG_WAIT_SEGMENTS ? LORA_SEGMENTS : 1;
    if (command->wait_counter == LORA_NO_COUNTER) return FW_NONE;
    if (command->flags & LORA_FLAG_WAIT_GROUPS) value *= fw_row_groups(rows);
    for (uint32_t i = 0; i < count; i++)
        if (fw->counters[command->wait_counter + i] < value) return command->wait_counter + i;
    return FW_NONE;
}

static void raise_counter(struct fw *fw, uint32_t counter, uint32_t by) {
    uint32_t value = fw->counters[counter] + by;
    fw->counters[counter] = (uint16_t)(value > 0xffff ? 0xffff : value);
    fw->events++;
}

void fw_signal_groups(struct fw *fw, struct fw_cursor *cursor,
                      const uint32_t groups[LORA_SEGMENTS]) {
    uint32_t all = fw_row_groups(cursor->rows);
    if (cursor->command.signal_counter == LORA_NO_COUNTER) return;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) {
        uint32_t now = groups[s] < all ? groups[s] : all;
        if (now > cursor->groups[s]) {
            raise_counter(fw, cursor->command.signal_counter + s, now - cursor->groups[s]);
            cursor->groups[s] = now;
        }
    }
}

void fw_signal(struct fw *fw, struct fw_cursor *cursor) {
    const struct lora_command *command = &cursor->command;
    if (command->signal_counter == LORA_NO_COUNTER) return;
    if (command->flags & LORA_FLAG_SIGNAL_SEGMENTS) {
        uint32_t groups[LORA_SEGMENTS];
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++) groups[s] = FW_NONE;
        fw_signal_groups(fw, cursor, groups);
    } else if (command->flags & LORA_FLAG_SIGNAL_HEADS) {
        struct lora_attention attention;
        fw_copy(&attention, command, sizeof attention);
        raise_counter(fw, command->signal_counter, attention.q_heads);
    } else {
        raise_counter(fw, command->signal_counter, 1);
    }
}

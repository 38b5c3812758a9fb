/* Runs a list: every unit takes its own commands in order, units run concurrently, counters say who
 * waits for whom. A dry run is the same with units that finish at once: counters only rise, so if
 * it reaches END, every live run with as many row groups does. */
#include "fw.h"

/* The control unit looks no further than the slowest other unit: those commands are still in the
 * cache. */
static uint32_t end_for(const struct fw *fw, uint32_t unit) {
    uint32_t end = fw->end;
    for (uint32_t i = LORA_UNIT_MPU; unit == LORA_UNIT_CONTROL && i < LORA_UNITS; i++)
        if (fw->cursors[i].index < end) end = fw->cursors[i].index + 1;
    return end;
}

/* Moves a unit's cursor to its next command. FW_MORE: loaded. FW_WAITING: it is before a FENCE
 * or END that is not passed yet, or has looked far enough for one poll. */
static uint32_t find_command(struct fw *fw, uint32_t unit) {
    struct fw_cursor *cursor = &fw->cursors[unit];
    uint32_t end = cursor->loaded ? 0 : end_for(fw, unit);
    for (uint32_t looked = 0; !cursor->loaded;) {
        const struct lora_command *command;
        uint32_t outcome;
        if (looked == FW_SEEK) return FW_WAITING;
        if (cursor->index >= end) {
            cursor->seen_events = fw->events;
            return FW_WAITING;
        }
        outcome = fw_seek(fw, unit, &cursor->index, &command);
        if (outcome == FW_FAILED) return FW_FAILED;
        if (outcome == FW_OVER) {
            looked++;
            continue;
        }
        if (command->unit == unit) {
            fw_copy_command(&cursor->command, command);
            cursor->rows = fw_command_rows(fw, command);
            cursor->loaded = 1;
        } else if (cursor->index >= fw->cursors[LORA_UNIT_CONTROL].index) {
            cursor->seen_events = fw->events;
            return FW_WAITING;
        } else {
            cursor->index++;
        }
    }
    return FW_MORE;
}

static void pass_command(struct fw *fw, struct fw_cursor *cursor) {
    fw_signal(fw, cursor);
    cursor->loaded = 0;
    cursor->index++;
}

static uint32_t poll_busy(struct fw *fw, uint32_t unit) {
    struct fw_cursor *cursor = &fw->cursors[unit];
    struct hal_unit_result result;
    uint32_t outcome = fw_unit_poll(fw, unit, &result);
    if (outcome == FW_OVER) {
        pass_command(fw, cursor);
        return FW_MORE;
    }
    if (outcome == FW_WAITING && (cursor->command.flags & LORA_FLAG_SIGNAL_SEGMENTS)) {
        uint32_t groups[LORA_SEGMENTS] = {0};
        hal_unit_segments(unit, groups);
        fw_signal_groups(fw, cursor, groups);
    }
    return outcome;
}

/* Nothing to do: no rows, or no KV data that has not been moved, or of which a state is made. */
static int is_empty(const struct fw *fw, const struct fw_cursor *cursor) {
    uint32_t opcode = cursor->command.opcode;
    if (opcode == LORA_CMD_KV_COMMIT) return fw->state.kv_op_count == 0;
    if (opcode == LORA_CMD_RECURRENCE && fw->state.kv_op_count) return 0;
    return cursor->rows == 0;
}

/* Nothing has happened since the unit was asked last: a busy one is asked once a slice. */
static int is_settled(const struct fw *fw, uint32_t unit) {
    const struct fw_cursor *cursor = &fw->cursors[unit];
    if (cursor->state == LORA_UNIT_BUSY) return fw->polled >> unit & 1;
    return cursor->seen_events == fw->events;
}

/* Takes commands until one runs or waits; FW_MORE when anything moved. A command may be done as
 * soon as it is begun. */
static uint32_t feed_unit(struct fw *fw, uint32_t unit) {
    struct fw_cursor *cursor = &fw->cursors[unit];
    uint32_t from = cursor->index, begun = 0;
    for (uint32_t taken = 0; taken < FW_SWEEP; taken++) {
        uint32_t outcome;
        if (cursor->state == LORA_UNIT_BUSY) {
            outcome = poll_busy(fw, unit);
            if (outcome == FW_FAILED) return outcome;
            if (outcome == FW_WAITING) {
                fw->polled |= 1u << unit;
                break;
            }
        }
        outcome = find_command(fw, unit);
        if (outcome == FW_FAILED) return outcome;
        if (outcome == FW_WAITING) break;
        if (!fw_may_start(fw, cursor)) {
            cursor->seen_events = fw->events;
            break;
        }
        if (fw->live && !is_empty(fw, cursor)) {
            fw_unit_begin(fw, unit);
            begun = 1;
            continue;
        }
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++) cursor->groups[s] = 0;
        pass_command(fw, cursor);
    }
    return begun || cursor->index != from ? FW_MORE : FW_WAITING;
}

/* FENCE and END hold until every unit has reached them, so has nothing to run. */
static uint32_t feed_control(struct fw *fw) {
    struct fw_cursor *cursor = &fw->cursors[LORA_UNIT_CONTROL];
    uint32_t from = cursor->index;
    uint32_t outcome = find_command(fw, LORA_UNIT_CONTROL);
    if (outcome != FW_MORE)
        return outcome == FW_WAITING && cursor->index != from ? (uint32_t)FW_MORE : outcome;
    for (uint32_t unit = LORA_UNIT_MPU; unit < LORA_UNITS; unit++)
        if (fw->cursors[unit].index < cursor->index)
            return cursor->index != from ? FW_MORE : FW_WAITING;
    if (fw_missing_counter(fw, &cursor->command, cursor->rows) != FW_NONE) return FW_WAITING;
    if (fw->live) hal_set_register(LORA_REG_LAST_INDEX + 4 * LORA_UNIT_CONTROL, cursor->index);
    if (cursor->command.opcode == LORA_CMD_END) return FW_OVER;
    if (cursor->command.opcode == LORA_CMD_BALLOT && fw->live) fw_vote(fw, &cursor->command);
    pass_command(fw, cursor);
    fw->events++;
    return FW_MORE;
}

/* CONTROL is asked once none of the others moves. */
static uint32_t sweep(struct fw *fw) {
    uint32_t moved = FW_WAITING;
    for (uint32_t unit = LORA_UNIT_MPU; unit < LORA_UNITS; unit++) {
        uint32_t outcome;
        if (is_settled(fw, unit)) continue;
        outcome = feed_unit(fw, unit);
        if (outcome == FW_FAILED) return outcome;
        if (outcome == FW_MORE) moved = FW_MORE;
    }
    return moved == FW_MORE ? moved : feed_control(fw);
}

uint32_t fw_dispatch(struct fw *fw) {
    uint32_t outcome = FW_MORE;
    fw->polled = 0;
    for (uint32_t i = 0; i < FW_SWEEPS && outcome == FW_MORE; i++) outcome = sweep(fw);
    return outcome;
}

/* The unit to name when nothing moves. First one that runs, other than the Router, which may only
 * wait for another board; then the Router; then the first in the list whose counter did not
 * come. */
static uint32_t stalled_unit(const struct fw *fw) {
    uint32_t unit, first = LORA_UNIT_CONTROL;
    for (unit = LORA_UNIT_MPU; unit < LORA_UNITS; unit++)
        if (fw->cursors[unit].state == LORA_UNIT_BUSY && unit != LORA_UNIT_ROUTER) return unit;
    if (fw->cursors[LORA_UNIT_ROUTER].state == LORA_UNIT_BUSY) return LORA_UNIT_ROUTER;
    for (unit = LORA_UNIT_MPU; unit < LORA_UNITS; unit++)
        if (fw->cursors[unit].loaded && fw->cursors[unit].index < fw->cursors[first].index)
            first = unit;
    return first;
}

void fw_blame_stall(struct fw *fw) {
    uint32_t unit = stalled_unit(fw);
    const struct fw_cursor *cursor = &fw->cursors[unit];
    if (!cursor->loaded && cursor->state != LORA_UNIT_BUSY) return;
    fw_blame(fw, cursor->index, &cursor->command);
    fw->error.unit = unit;
    if (cursor->state == LORA_UNIT_BUSY) return;
    fw->error.counter = fw_missing_counter(fw, &cursor->command, cursor->rows);
    if (fw->error.counter != FW_NONE) {
        fw->error.found = fw->counters[fw->error.counter];
        fw->error.expected = cursor->command.wait_value;
        if (cursor->command.flags & LORA_FLAG_WAIT_GROUPS)
            fw->error.expected *= fw_row_groups(cursor->rows);
    }
}

/* Units as the firmware sees them: start, poll, abort. DMA finishes within start, and so do kernels
 * that work alone; those that can share threads wait for each other, so that boards run at once. */
#include "board.h"
#include "kernels/float_mode.h"

#include <string.h>

#define START_CYCLES 32 /* board time that a start costs */
#define NO_ROW 0xffffffffu

static struct lora_unit_call call_of(const struct emu_board *board,
                                     const struct lora_command *command,
                                     const struct lora_list *list,
                                     const struct lora_step_state *state) {
    return (struct lora_unit_call){.size = sizeof(struct lora_unit_call),
                                   .board = board->index,
                                   .command = command,
                                   .list = list,
                                   .state = state,
                                   .banks = board->memory.base,
                                   .bank_bytes = board->memory.bytes,
                                   .nonfinite_row = NO_ROW};
}

static int call_kernel(const struct emu_board *board, struct lora_unit_call *call) {
    const struct lora_kernels *kernels = board->cluster->kernels;
    int status = LORA_ERR_OPCODE;
    uint64_t mode = float_mode_set();
    uint32_t opcode = call->command->opcode;
    if (opcode == LORA_CMD_MATRIX) status = kernels->matrix(kernels->context, call);
    if (opcode == LORA_CMD_VECTOR) status = kernels->vector(kernels->context, call);
    if (opcode == LORA_CMD_ATTENTION) status = kernels->attention(kernels->context, call);
    if (opcode == LORA_CMD_ADAPTER && kernels->adapter)
        status = kernels->adapter(kernels->context, call);
    float_mode_restore(mode);
    return status;
}

static void finish(struct emu_unit *entry, int status) {
    entry->result.nonfinite_count = entry->call.nonfinite_count;
    entry->result.nonfinite_row = entry->call.nonfinite_row;
    entry->result.status = (uint32_t)status;
    entry->state = status ? LORA_UNIT_FAILED : LORA_UNIT_DONE;
}

static void start_kernel(struct emu_board *board, struct emu_unit *entry) {
    if (!board->cluster->kernels->batch) {
        finish(entry, call_kernel(board, &entry->call));
        return;
    }
    entry->queued = true;
    board->cluster->queued++;
}

static void unqueue(struct emu_board *board, struct emu_unit *entry) {
    if (entry->queued) board->cluster->queued--;
    entry->queued = false;
}

void emu_unit_start(struct emu_board *board, uint32_t unit, const struct lora_command *command,
                    const struct lora_list *list, const struct lora_step_state *state) {
    if (unit >= LORA_UNITS) return;
    struct emu_unit *entry = &board->units[unit];
    entry->result = (struct hal_unit_result){.nonfinite_row = NO_ROW};
    entry->result.port = LORA_NO_PORT;
    entry->state = LORA_UNIT_BUSY;
    board->cluster->now += START_CYCLES;
    board->cluster->activity++;
    if (board->stuck_units & 1u << unit) return;
    if (unit == LORA_UNIT_ROUTER) {
        emu_router_start(board, (const struct lora_gather *)(const void *)command, list, state);
        return;
    }
    entry->call = call_of(board, command, list, state);
    if (unit == LORA_UNIT_DMA)
        finish(entry, emu_dma(board, command, list, state, &entry->result));
    else if (unit == LORA_UNIT_MPU || unit == LORA_UNIT_VFU) start_kernel(board, entry);
    else finish(entry, LORA_ERR_OPCODE);
}

bool emu_units_run(struct emu_cluster *cluster) {
    const struct lora_kernels *kernels = cluster->kernels;
    struct emu_unit *entries[LORA_MAX_BOARDS * LORA_UNITS];
    struct lora_unit_call calls[LORA_MAX_BOARDS * LORA_UNITS];
    int statuses[LORA_MAX_BOARDS * LORA_UNITS];
    uint32_t count = 0;
    if (cluster->queued == 0) return false;
    for (uint32_t b = 0; b < cluster->boards; b++)
        for (uint32_t unit = 0; unit < LORA_UNITS; unit++) {
            struct emu_unit *entry = &cluster->board[b].units[unit];
            if (!entry->queued) continue;
            unqueue(&cluster->board[b], entry);
            calls[count] = entry->call;
            entries[count++] = entry;
        }
    uint64_t mode = float_mode_set();
    kernels->batch(kernels->context, cluster->pool, calls, statuses, count);
    float_mode_restore(mode);
    for (uint32_t i = 0; i < count; i++) {
        entries[i]->call = calls[i];
        finish(entries[i], statuses[i]);
    }
    cluster->activity++;
    return true;
}

static void take_router(struct emu_board *board, struct emu_unit *entry) {
    struct emu_router *router = &board->router;
    emu_router_pump(board);
    if (router->state == LORA_UNIT_BUSY) return;
    entry->state = router->state;
    entry->result.status = router->status;
    entry->result.port = router->failed_port;
    entry->result.frames_sent = router->frames_sent;
    entry->result.frames_received = router->frames_received;
    entry->result.frames_dropped = router->frames_dropped;
    router->state = LORA_UNIT_IDLE;
}

uint32_t emu_unit_poll(struct emu_board *board, uint32_t unit, struct hal_unit_result *result) {
    if (unit >= LORA_UNITS) return LORA_UNIT_IDLE;
    struct emu_unit *entry = &board->units[unit];
    bool stuck = board->stuck_units & 1u << unit;
    if (unit == LORA_UNIT_ROUTER && entry->state == LORA_UNIT_BUSY && !stuck)
        take_router(board, entry);
    uint32_t state = entry->state;
    if (state == LORA_UNIT_DONE || state == LORA_UNIT_FAILED) {
        *result = entry->result;
        entry->state = LORA_UNIT_IDLE;
        board->cluster->activity++;
    }
    return state;
}

void emu_unit_abort(struct emu_board *board, uint32_t unit) {
    if (unit >= LORA_UNITS) return;
    board->units[unit].state = LORA_UNIT_IDLE;
    unqueue(board, &board->units[unit]);
    if (unit == LORA_UNIT_ROUTER) emu_router_abort(board);
}

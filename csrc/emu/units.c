/* Units as the firmware sees them: start, poll, abort. All but the Router finish within start; the
 * result waits for the poll. */
#include "board.h"
#include "kernels/float_mode.h"

#include <string.h>

#define START_CYCLES 32 /* board time that a start costs */
#define NO_ROW 0xffffffffu

static int call_kernel(struct emu_board *board, const struct lora_command *command,
                       const struct lora_list *list, const struct lora_step_state *state,
                       struct hal_unit_result *result) {
    const struct lora_kernels *kernels = board->cluster->kernels;
    struct lora_unit_call call = {.size = sizeof call,
                                  .board = board->index,
                                  .command = command,
                                  .list = list,
                                  .state = state,
                                  .banks = board->memory.base,
                                  .bank_bytes = board->memory.bytes,
                                  .nonfinite_row = NO_ROW};
    int status = LORA_ERR_OPCODE;
    uint64_t mode = float_mode_set();
    if (command->opcode == LORA_CMD_MATRIX) status = kernels->matrix(kernels->context, &call);
    if (command->opcode == LORA_CMD_VECTOR) status = kernels->vector(kernels->context, &call);
    if (command->opcode == LORA_CMD_ATTENTION)
        status = kernels->attention(kernels->context, &call);
    float_mode_restore(mode);
    result->nonfinite_count = call.nonfinite_count;
    result->nonfinite_row = call.nonfinite_row;
    return status;
}

static int run_now(struct emu_board *board, uint32_t unit, const struct lora_command *command,
                   const struct lora_list *list, const struct lora_step_state *state,
                   struct hal_unit_result *result) {
    if (unit == LORA_UNIT_DMA) return emu_dma(board, command, list, state, result);
    if (unit == LORA_UNIT_MPU || unit == LORA_UNIT_VFU)
        return call_kernel(board, command, list, state, result);
    return LORA_ERR_OPCODE;
}

void emu_unit_start(struct emu_board *board, uint32_t unit, const struct lora_command *command,
                    const struct lora_list *list, const struct lora_step_state *state) {
    if (unit >= LORA_UNITS) return;
    struct emu_unit *entry = &board->units[unit];
    memset(&entry->result, 0, sizeof entry->result);
    entry->result.nonfinite_row = NO_ROW;
    entry->result.port = LORA_NO_PORT;
    entry->state = LORA_UNIT_BUSY;
    board->cluster->now += START_CYCLES;
    board->cluster->activity++;
    if (board->stuck_units & 1u << unit) return;
    if (unit == LORA_UNIT_ROUTER) {
        emu_router_start(board, (const struct lora_gather *)(const void *)command, list, state);
        return;
    }
    int status = run_now(board, unit, command, list, state, &entry->result);
    entry->result.status = (uint32_t)status;
    entry->state = status ? LORA_UNIT_FAILED : LORA_UNIT_DONE;
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
    if (unit == LORA_UNIT_ROUTER) emu_router_abort(board);
}

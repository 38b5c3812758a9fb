/* The DMA unit: row moves and checksums; the KV moves are in kv_moves.c. */
#include "board.h"

#include <string.h>

#include "lora/host.h"

static uint8_t *rows_at(const struct emu_board *board, uint32_t bank, uint32_t offset,
                        uint32_t stride, uint32_t rows, uint32_t bytes) {
    uint64_t span = rows ? (uint64_t)(rows - 1) * stride + bytes : 0;
    return emu_memory_at(&board->memory, bank, offset, span);
}

static uint32_t least_row_count(uint32_t count) {
    return count < LORA_MAX_ROWS ? count : LORA_MAX_ROWS;
}

static int move_rows(struct emu_board *board, const struct lora_move_rows *command,
                     const struct lora_step_state *state) {
    bool pack = command->flags & LORA_FLAG_PACK;
    bool selected = pack || (command->flags & LORA_FLAG_SELECTED);
    uint32_t all = least_row_count(state->row_count);
    uint32_t rows = selected ? least_row_count(state->selected_count) : all;
    if (command->flags & LORA_FLAG_VOTES) rows = all != 0;
    const uint8_t *source = rows_at(board, command->x_bank, command->x_offset, command->x_stride,
                                    pack ? all : rows, command->bytes);
    uint8_t *target = rows_at(board, command->y_bank, command->y_offset, command->y_stride, rows,
                              command->bytes);
    if (rows == 0) return LORA_OK;
    if (!source || !target) return LORA_ERR_ADDRESS;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t from = pack ? state->selected[i] : i;
        if (from >= all) return LORA_ERR_ROW;
        memmove(target + (size_t)i * command->y_stride, source + (size_t)from * command->x_stride,
                command->bytes);
    }
    return LORA_OK;
}

static int checksum(struct emu_board *board, const struct lora_checksum *command,
                    struct hal_unit_result *result) {
    uint64_t offset = (uint64_t)command->offset_hi << 32 | command->offset_lo;
    const uint8_t *at = emu_memory_at(&board->memory, command->bank, offset, command->bytes);
    if (!at) return LORA_ERR_ADDRESS;
    result->value = lora_crc32(command->crc, at, command->bytes);
    return LORA_OK;
}

int emu_dma(struct emu_board *board, const struct lora_command *command,
            const struct lora_list *list, const struct lora_step_state *state,
            struct hal_unit_result *result) {
    const void *record = command;
    switch (command->opcode) {
    case LORA_CMD_KV_STORE: return emu_kv_store(board, record, list, state);
    case LORA_CMD_KV_COMMIT: return emu_kv_commit(board, record, list, state);
    case LORA_CMD_MOVE_ROWS: return move_rows(board, record, state);
    case LORA_CMD_CHECKSUM: return checksum(board, record, result);
    default: return LORA_ERR_OPCODE;
    }
}

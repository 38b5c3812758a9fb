/* Adapter slots: the list's claim on banks, the commands that use them, the rows that name one. */
#include "fw.h"

#define CHUNK_LINES (LORA_ADAPTER_CHUNK / LORA_LINE_BYTES)
#define MAX_CHUNKS 0x100000u /* of a slot: 8 GiB; keeps chunk numbers within 32 bits */

static uint32_t above(struct fw *fw, uint32_t value, uint32_t limit) {
    return value <= limit ? (uint32_t)FW_MORE : fw_fail(fw, LORA_ERR_SIZE, value, limit);
}

/* Every chunk of every slot lies in the arenas. */
uint32_t fw_check_adapter_slots(struct fw *fw, const struct lora_list *list) {
    uint32_t banks = list->adapter_bank_count;
    uint32_t chunks;
    if (list->adapter_slots == 0) return FW_MORE;
    if (above(fw, list->adapter_slots, LORA_MAX_ADAPTER_SLOTS) == FW_FAILED ||
        above(fw, list->adapter_chunks, MAX_CHUNKS) == FW_FAILED ||
        above(fw, list->adapter_matrices, 0xffff) == FW_FAILED ||
        above(fw, list->adapter_columns, FW_MAX_DIMENSION) == FW_FAILED ||
        above(fw, banks, LORA_MAX_BANKS) == FW_FAILED)
        return FW_FAILED;
    if (banks == 0 || list->adapter_chunks == 0) return fw_fail(fw, LORA_ERR_SIZE, 0, 1);
    chunks = list->adapter_slots * list->adapter_chunks;
    for (uint32_t i = 0; i < banks && i < chunks; i++) {
        uint64_t bytes = (uint64_t)((chunks - 1 - i) / banks + 1) * LORA_ADAPTER_CHUNK;
        uint64_t start = (uint64_t)list->adapter_line * LORA_LINE_BYTES;
        if (fw_check_range(fw, list->adapter_bank_first + i, start, bytes) == FW_FAILED)
            return FW_FAILED;
    }
    return FW_MORE;
}

/* Rows of h, for the matrix that has number `adapter` in the directories. */
static uint32_t check_h(struct fw *fw, const struct lora_list *list, uint32_t adapter,
                        uint32_t offset, uint32_t stride) {
    struct fw_buffer h = {LORA_BANK_ONCHIP, offset, stride, list->adapter_columns * 2, 2};
    if (list->adapter_slots == 0) return fw_fail(fw, LORA_ERR_SIZE, adapter, 0);
    if (adapter >= list->adapter_matrices)
        return fw_fail(fw, LORA_ERR_SIZE, adapter, list->adapter_matrices);
    return fw_check_buffer(fw, list, h);
}

uint32_t fw_check_matrix_adapter(struct fw *fw, const struct lora_list *list,
                                 const struct lora_matrix *matrix) {
    if (matrix->adapter == 0) return FW_MORE;
    return check_h(fw, list, matrix->adapter - 1u, matrix->h_offset, matrix->h_stride);
}

uint32_t fw_check_adapter(struct fw *fw, const struct lora_list *list,
                          const struct lora_adapter *command) {
    struct fw_buffer x = {LORA_BANK_ONCHIP, command->x_offset, command->x_stride, command->k * 2,
                          2};
    if (command->k == 0 || command->k > FW_MAX_DIMENSION)
        return fw_fail(fw, LORA_ERR_SIZE, command->k, FW_MAX_DIMENSION);
    if (fw_check_buffer(fw, list, x) == FW_FAILED) return FW_FAILED;
    return check_h(fw, list, command->adapter, command->h_offset, command->h_stride);
}

/* A row may name a slot that holds an adapter. */
uint32_t fw_check_row_adapter(struct fw *fw, const struct lora_row *row) {
    const struct lora_list *list = &fw->list->header;
    uint32_t slot = (uint32_t)row->adapter, chunk, magic;
    uint64_t line;
    if (row->adapter == -1) return FW_MORE;
    if (slot >= list->adapter_slots) return fw_fail(fw, LORA_ERR_ROW, slot, list->adapter_slots);
    chunk = slot * list->adapter_chunks;
    line = list->adapter_line + (uint64_t)(chunk / list->adapter_bank_count) * CHUNK_LINES;
    hal_read(list->adapter_bank_first + chunk % list->adapter_bank_count, line * LORA_LINE_BYTES,
             &magic, sizeof magic);
    if (magic != LORA_ADAPTER_MAGIC) return fw_fail(fw, LORA_ERR_ROW, magic, LORA_ADAPTER_MAGIC);
    return FW_MORE;
}

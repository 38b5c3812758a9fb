/* REGISTER: bounds of one field or buffer, for the checks of all commands. */
#include "fw.h"

uint32_t fw_check_counter(struct fw *fw, uint32_t counter, int segments) {
    uint32_t last = counter + (segments ? LORA_SEGMENTS - 1 : 0);
    if (counter == LORA_NO_COUNTER || last < fw->list->header.counter_count) return FW_MORE;
    fw->error.counter = last;
    return fw_fail(fw, LORA_ERR_COUNTER, last, fw->list->header.counter_count);
}

uint32_t fw_check_equal(struct fw *fw, uint32_t found, uint32_t expected) {
    return found == expected ? (uint32_t)FW_MORE : fw_fail(fw, LORA_ERR_SIZE, found, expected);
}

static uint32_t fail_buffer(struct fw *fw, const struct fw_buffer *buffer, uint64_t found,
                            uint64_t expected) {
    fw->error.bank = buffer->bank;
    fw->error.offset = buffer->offset;
    return fw_fail(fw, LORA_ERR_ADDRESS, found > FW_NONE ? FW_NONE : (uint32_t)found,
                   (uint32_t)expected);
}

/* Activations are stored on-chip or, for what the host reads, in the list's results or, what it
 * reads of every step, after the records. */
uint32_t fw_check_rows(struct fw *fw, const struct lora_list *list, struct fw_buffer buffer,
                       uint32_t rows) {
    uint64_t low = 0, high = list->onchip_bytes;
    uint64_t end = (uint64_t)buffer.offset + (uint64_t)(rows - 1) * buffer.stride +
                   buffer.row_bytes;
    if (buffer.row_bytes == 0) return FW_MORE;
    if (buffer.bank == list->control_bank && buffer.offset < LORA_CONTROL_PAGE) {
        low = LORA_ARGMAX_OFFSET;
        high = LORA_RECORDS_BYTES;
    } else if (buffer.bank == list->control_bank) {
        low = list->results_offset;
        high = low + list->results_bytes;
    } else if (buffer.bank != LORA_BANK_ONCHIP) {
        return fail_buffer(fw, &buffer, buffer.bank, LORA_BANK_ONCHIP);
    }
    if (buffer.offset < low) return fail_buffer(fw, &buffer, buffer.offset, low);
    if (end > high) return fail_buffer(fw, &buffer, end, high);
    if ((buffer.offset | buffer.stride) & (buffer.align - 1))
        return fail_buffer(fw, &buffer, buffer.stride, buffer.align);
    if (rows > 1 && buffer.stride < buffer.row_bytes)
        return fail_buffer(fw, &buffer, buffer.stride, buffer.row_bytes);
    return FW_MORE;
}

uint32_t fw_check_buffer(struct fw *fw, const struct lora_list *list, struct fw_buffer buffer) {
    return fw_check_rows(fw, list, buffer, list->max_rows);
}

uint32_t fw_check_dimension(struct fw *fw, uint32_t value, uint32_t min) {
    if (value >= min && value <= FW_MAX_DIMENSION) return FW_MORE;
    return fw_fail(fw, LORA_ERR_SIZE, value, value < min ? min : FW_MAX_DIMENSION);
}

/* The firmware's host build as the control of emulated boards. */
#include "board.h"

#include <stdlib.h>

static void *open_core(void *context, uint32_t board, const struct lora_board_calls *calls) {
    (void)context, (void)board, (void)calls;
    size_t lines = ((size_t)fw_bytes() + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES;
    return aligned_alloc(LORA_LINE_BYTES, lines * LORA_LINE_BYTES);
}

static void begin(void *core) { fw_reset(core); }

static uint32_t poll(void *core) { return fw_poll(core); }

const struct lora_control emu_firmware_control = {
    .size = sizeof(struct lora_control),
    .slice_cycles = 16,
    .most_slices = 20000, /* even if firmware never stops */
    .open = open_core,
    .begin = begin,
    .poll = poll,
    .close = free,
};

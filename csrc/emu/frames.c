/* A frame's CRC. */
#include "aurora.h"

#include <string.h>

#include "lora/crc32.h"

/* The hop count changes on the way; the CRC is end to end, so it counts as 0. */
uint32_t emu_frame_crc(const struct lora_frame *frame) {
    _Static_assert(offsetof(struct lora_frame, hop) == 18, "in the second 16 bytes");
    return lora_crc32_without(frame, sizeof *frame + (uint64_t)frame->length,
                              offsetof(struct lora_frame, hop));
}

void emu_frame_seal(struct lora_frame *frame, uint32_t crc) {
    memcpy(emu_frame_payload(frame) + frame->length, &crc, sizeof crc);
}

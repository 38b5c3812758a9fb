/* Ports whose cable leads out of this process. What is sent lies in the far end's FIFO until it is
 * taken, and what arrives is sent by it. */
#include "far.h"

#include <stdlib.h>
#include <string.h>

struct emu_far *emu_far_new(struct emu_port *near) {
    const size_t lines = (sizeof(struct emu_far) + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES;
    struct emu_far *far = aligned_alloc(LORA_LINE_BYTES, lines * LORA_LINE_BYTES);
    if (!far) return NULL;
    memset(far, 0, sizeof *far);
    far->board.cluster = near->board->cluster;
    far->board.programmed = true;
    if (!emu_port_init(emu_far_end(far), &far->board, 0)) return far;
    free(far);
    return NULL;
}

void emu_far_free(struct emu_far *far) {
    if (far) emu_port_free(emu_far_end(far));
    free(far);
}

void emu_far_notify(struct emu_cluster *cluster) {
    for (uint32_t b = 0; b < cluster->boards; b++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            struct emu_far *far = cluster->board[b].ports[p].far;
            if (far && far->notify && emu_port_head(emu_far_end(far))) far->notify(far->context);
        }
}

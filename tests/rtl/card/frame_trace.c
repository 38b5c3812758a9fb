// All frames that boards put on their cables are counted: emu_wire_before of csrc/emu by the
// linker's --wrap. No gather does without them: emu_gather_direct likewise.
#include "board.h"

#include "lora/host.h"

enum { SOURCES = 256, KINDS = 4 };

struct sent {
    uint32_t count, crc; // of all bytes, in order
};

static struct sent sent[LORA_MAX_BOARDS][LORA_PORTS][SOURCES][KINDS];

bool __real_emu_wire_before(struct emu_port *port, struct lora_frame *frame);
bool __wrap_emu_wire_before(struct emu_port *port, struct lora_frame *frame);
bool __wrap_emu_wire_before(struct emu_port *port, struct lora_frame *frame) {
    struct sent *found = &sent[port->board->index][port->index][frame->source][frame->kind % KINDS];
    found->count++;
    found->crc = lora_crc32(found->crc, frame, sizeof *frame + frame->length + 4);
    return __real_emu_wire_before(port, frame);
}

bool __wrap_emu_gather_direct(struct emu_cluster *cluster);
bool __wrap_emu_gather_direct(struct emu_cluster *cluster) {
    (void)cluster;
    return false;
}

// Frames of a kind that a board has sent by a port and that began at `source`.
uint32_t frames_sent(uint32_t board, uint32_t port, uint32_t source, uint32_t kind, uint32_t *crc);
uint32_t frames_sent(uint32_t board, uint32_t port, uint32_t source, uint32_t kind, uint32_t *crc) {
    const struct sent *found = &sent[board][port][source][kind % KINDS];
    *crc = found->crc;
    return found->count;
}

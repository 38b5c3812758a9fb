/* What faults do to frames on the wire. */
#include "aurora.h"

#include <string.h>

bool emu_port_has_frame_faults(const struct emu_port *port) {
    const struct emu_port_faults *faults = &port->faults;
    return faults->garble.on || faults->flip.on || faults->drop.on || faults->duplicate.on ||
           faults->reorder.on || faults->stale.on || faults->delay.on;
}

static void exchange(uint8_t *a, uint8_t *b) {
    uint8_t kept[EMU_SLOT_BYTES];
    memcpy(kept, a, EMU_SLOT_BYTES);
    memcpy(a, b, EMU_SLOT_BYTES);
    memcpy(b, kept, EMU_SLOT_BYTES);
}

/* Damage to a frame in flight. A flipped bit is seen by the core's own frame CRC as well; garbled
 * payload under a right CRC is the fault that only a payload check finds. */
static void damage(struct emu_port *port, struct lora_frame *frame) {
    struct emu_port_faults *faults = &port->faults;
    if (frame->length > 0 && emu_frame_struck(&faults->garble)) {
        emu_frame_payload(frame)[frame->length / 2] ^= 0x5a;
        emu_frame_seal(frame, emu_frame_crc(frame));
    }
    if (!emu_frame_struck(&faults->flip)) return;
    emu_frame_payload(frame)[frame->length / 2] ^= 0x10; /* of an empty payload, its CRC */
    port->peer->counters.frames_with_errors++;
}

bool emu_wire_before(struct emu_port *port, struct lora_frame *frame) {
    if (emu_frame_struck(&port->faults.drop)) return false;
    damage(port, frame);
    if (emu_frame_struck(&port->faults.stale)) {
        frame->epoch--;
        emu_frame_seal(frame, emu_frame_crc(frame));
    }
    return true;
}

static void send_again(struct emu_port *far) {
    const struct lora_frame *frame = emu_port_slot(far, far->tail - 1);
    if (far->tail - far->head >= EMU_FIFO_FRAMES - 1) return; /* the far end has no room for it */
    memcpy(emu_port_slot(far, far->tail), frame, EMU_SLOT_BYTES);
    far->poisons += frame->kind == LORA_FRAME_POISON;
    far->tail++;
}

/* The fault waits for a frame that another one still precedes. */
static void overtake(struct emu_port *far) {
    void *last = emu_port_slot(far, far->tail - 1), *before = emu_port_slot(far, far->tail - 2);
    exchange(before, last);
    far->checked = 0;
}

void emu_wire_after(struct emu_port *port, uint64_t now) {
    struct emu_port *far = port->peer;
    if (emu_frame_struck(&port->faults.duplicate)) send_again(far);
    if (far->tail - far->head >= 2 && emu_frame_struck(&port->faults.reorder)) overtake(far);
    if (!emu_frame_struck(&port->faults.delay)) return;
    far->held = true;
    far->held_until = now + port->faults.delay_cycles;
}

/* Frames between ports: FIFO, back-pressure, counters, and what faults do on the wire. */
#include "board.h"

#include <stdlib.h>
#include <string.h>

int emu_port_init(struct emu_port *port, struct emu_board *board, uint32_t index) {
    port->board = board;
    port->index = index;
    port->slots = calloc(EMU_FIFO_FRAMES, EMU_SLOT_BYTES);
    return port->slots ? LORA_OK : LORA_ERR_MEMORY;
}

void emu_port_free(struct emu_port *port) { free(port->slots); }

void emu_port_flush(struct emu_port *port) {
    port->head = port->tail = port->checked = port->poisons = 0;
    port->flow_stopped = port->held = false;
}

void emu_port_power_off(struct emu_port *port) {
    emu_port_flush(port);
    memset(&port->counters, 0, sizeof port->counters);
    port->core_reset = port->reset_done = false;
    emu_port_refresh(port);
}

static bool end_ready(const struct emu_port *port, uint64_t now) {
    return port->board->programmed && !port->board->lost && port->reset_done && !port->core_reset &&
           !port->faults.down && now >= port->ready_at;
}

bool emu_port_is_ready(const struct emu_port *port) {
    return end_ready(port, port->board->cluster->now);
}

static void refresh_end(struct emu_port *port, bool up, uint64_t now) {
    if (!port->up) port->counters.not_ok_cycles += now - port->refreshed_at;
    port->refreshed_at = now;
    if (port->up && !up) {
        port->counters.channel_down++;
        port->counters.line_down++;
    }
    if (port->up != up) emu_wake(port->board);
    port->up = up;
}

void emu_port_refresh(struct emu_port *port) {
    uint64_t now = port->board->cluster->now;
    if (port->held && now >= port->held_until) port->held = false;
    bool up = port->peer && end_ready(port, now) && end_ready(port->peer, now);
    refresh_end(port, up, now);
    if (port->peer && port->peer != port) refresh_end(port->peer, up, now);
}

static uint32_t fill_level(const struct emu_port *port) { return port->tail - port->head; }

/* The last slot is kept for a poison frame: it must get through when everything else is stuck. */
struct lora_frame *emu_port_claim(struct emu_port *port, uint32_t spare) {
    if (!port->up) return NULL;
    struct emu_port *far = port->peer;
    if (fill_level(far) + spare + 1 > EMU_FIFO_FRAMES - 1) {
        if (!far->flow_stopped) port->counters.flow_full++;
        far->flow_stopped = true;
        return NULL;
    }
    return emu_port_slot(far, far->tail);
}

void emu_port_commit(struct emu_port *port) {
    struct emu_port *far = port->peer;
    struct lora_frame *frame = emu_port_slot(far, far->tail);
    uint32_t bytes = (uint32_t)sizeof *frame + frame->length + 4;
    uint32_t transfers = (bytes + 63) / 64;
    port->counters.tx += transfers;
    if (!emu_wire_before(port, frame)) return;
    far->poisons += frame->kind == LORA_FRAME_POISON;
    far->tail++;
    emu_wire_after(port, port->board->cluster->now);
    far->counters.rx += transfers;
    far->counters.frames_received++;
    port->frame_bytes += bytes;
    port->payload_bytes += frame->length;
    far->board->links_awake = true;
}

void emu_port_poison(struct emu_port *port, uint32_t epoch, uint32_t step, uint8_t source) {
    if (!port->up || fill_level(port->peer) == EMU_FIFO_FRAMES) return;
    if (emu_port_poisoned(port->peer, epoch, step)) return;
    struct lora_frame *frame = emu_port_slot(port->peer, port->peer->tail);
    *frame = (struct lora_frame){.magic = LORA_FRAME_MAGIC,
                                 .epoch = epoch,
                                 .step = step,
                                 .source = source,
                                 .hop = 1,
                                 .kind = LORA_FRAME_POISON};
    emu_frame_seal(frame, emu_frame_crc(frame));
    emu_port_commit(port);
}

void emu_port_pop(struct emu_port *port) {
    port->poisons -= emu_port_slot(port, port->head)->kind == LORA_FRAME_POISON;
    if (++port->head == port->tail) port->head = port->tail = port->checked = 0; /* warm slots */
    if (port->flow_stopped) {
        port->flow_stopped = false;
        port->counters.flow_empty++;
        port->peer->board->links_awake = true;
    }
}

bool emu_port_head_intact(struct emu_port *port) {
    if (port->checked == port->head + 1) return true; /* it waited for something else */
    struct lora_frame *frame = emu_port_slot(port, port->head);
    if (frame->magic != LORA_FRAME_MAGIC || frame->length > LORA_FRAME_PAYLOAD) return false;
    if (frame->kind < LORA_FRAME_DATA || frame->kind > LORA_FRAME_TEST) return false;
    uint32_t crc;
    memcpy(&crc, (const uint8_t *)(frame + 1) + frame->length, sizeof crc);
    bool blind = port->board->blind & LORA_BLIND_FRAME_CRC;
    if (crc != emu_frame_crc(frame) && !blind) return false;
    port->checked = port->head + 1;
    return true;
}

bool emu_port_find_poison(const struct emu_port *port, uint32_t epoch, uint32_t step) {
    for (uint32_t at = port->head; at != port->tail; at++) {
        const struct lora_frame *frame = emu_port_slot(port, at);
        if (frame->kind == LORA_FRAME_POISON && frame->epoch == epoch &&
            (int32_t)(step - frame->step) >= 0)
            return true;
    }
    return false;
}

uint32_t emu_port_drop_before(struct emu_port *port, uint32_t epoch) {
    uint32_t dropped = 0;
    for (;; dropped++) {
        const struct lora_frame *frame = emu_port_head(port);
        if (!frame || (int32_t)(frame->epoch - epoch) >= 0) return dropped;
        emu_port_pop(port);
    }
}

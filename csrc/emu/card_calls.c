/* What a simulated card finds around it on its emulated board. */
#include "board.h"

#include <string.h>

_Static_assert(LORA_EMU_FRAME_ROOM == EMU_SLOT_BYTES, "a caller's room for a frame");

static int read_bytes(uint32_t bank, uint64_t offset, void *data, uint32_t bytes) {
    return !emu_hal_reads(bank, offset, data, bytes);
}

static int write_bytes(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes) {
    return !emu_hal_writes(bank, offset, data, bytes);
}

/* The fault of a unit's command, whichever unit it is of: a read of theirs. */
static int unit_fails(void) {
    uint32_t *left = emu_hal_board()->control_faults.commands_to_failure;
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) {
        if (!left[unit]) continue;
        left[unit] = 0;
        return 1;
    }
    return 0;
}

static void pass(uint64_t cycles) { emu_hal_board()->clock += cycles; }

static int port_up(uint32_t index, uint32_t *room) {
    const struct emu_port *port = emu_hal_port(index);
    *room = port->up ? EMU_FIFO_FRAMES - (port->peer->tail - port->peer->head) : 0;
    return port->up;
}

/* What the caller has seen may have changed since: then the frame is lost, as on a wire. */
static void port_send(uint32_t index, const uint8_t *frame, uint32_t bytes, uint64_t sent_at) {
    struct emu_port *port = emu_hal_port(index);
    uint32_t room;
    struct lora_frame head;
    if (!port_up(index, &room) || !room || bytes > EMU_SLOT_BYTES || bytes < sizeof head) return;
    memcpy(&head, frame, sizeof head);
    if (head.length > LORA_FRAME_PAYLOAD) return;
    struct emu_port *far = port->peer;
    memcpy(emu_port_slot(far, far->tail), frame, bytes);
    far->sent_at[far->tail & (EMU_FIFO_FRAMES - 1)] = sent_at;
    emu_port_commit(port);
}

static uint32_t port_take(uint32_t index, uint8_t *frame, uint64_t *sent_at) {
    struct emu_port *port = emu_hal_port(index);
    const struct lora_frame *head = emu_port_head(port);
    if (!head) return 0;
    uint64_t bytes = sizeof *head + (uint64_t)head->length + 4;
    if (bytes > EMU_SLOT_BYTES) bytes = EMU_SLOT_BYTES;
    memcpy(frame, head, bytes);
    *sent_at = port->sent_at[port->head & (EMU_FIFO_FRAMES - 1)];
    emu_port_pop(port);
    return (uint32_t)bytes;
}

const struct lora_board_calls emu_card_calls = {
    .size = sizeof(struct lora_board_calls),
    .get_register = hal_register,
    .set_register = hal_set_register,
    .read = read_bytes,
    .write = write_bytes,
    .unit_fails = unit_fails,
    .time = hal_cycles,
    .pass = pass,
    .port_up = port_up,
    .port_send = port_send,
    .port_take = port_take,
};

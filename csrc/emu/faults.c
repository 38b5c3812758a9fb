/* Fault knobs. A fault belongs to the board's hardware: it outlives programs, and resets too unless
 * it was injected to last until one. */
#include "board.h"

#include <string.h>

static void clear_port(struct emu_port *port) {
    bool was_down = port->faults.down;
    memset(&port->faults, 0, sizeof port->faults);
    const struct emu_cluster *cluster = port->board->cluster;
    if (was_down) /* the lanes train again */
        port->ready_at = cluster->now + emu_cycles(cluster, EMU_LANES_UP_US);
}

static void clear_all(struct emu_board *board) {
    for (uint32_t p = 0; p < LORA_PORTS; p++) clear_port(&board->ports[p]);
    board->stuck_units = 0;
    board->router.stuck = false;
    board->completion_lost = board->done_lost = board->firmware_dead = board->router.misfile.on =
        false;
    board->lost = board->until_reset = false;
}

void emu_faults_reset(struct emu_board *board) {
    if (!board->until_reset) return;
    clear_all(board);
    for (uint32_t p = 0; p < LORA_PORTS; p++) emu_port_refresh(&board->ports[p]);
}

/* `count` 0: until the fault is cleared. */
static struct emu_frame_fault frame_fault(uint32_t after, uint32_t count) {
    return (struct emu_frame_fault){true, after, count ? count : UINT32_MAX};
}

static int set_port(struct emu_port *port, uint32_t kind, uint32_t b, uint32_t c) {
    struct emu_port_faults *faults = &port->faults;
    if (kind == LORA_FAULT_LINK_DOWN) faults->down = true;
    if (kind == LORA_FAULT_LINK_GARBLE) faults->garble = frame_fault(b, c);
    if (kind == LORA_FAULT_LINK_FLIP && c > 0) faults->flip = frame_fault(b, c);
    if (kind == LORA_FAULT_LINK_CONFIG) {
        faults->configured = true;
        faults->configuration = b;
    }
    return LORA_OK;
}

static int set_fault(struct emu_board *board, uint32_t kind, uint32_t a, uint32_t b, uint32_t c) {
    switch (kind) {
    case LORA_FAULT_NONE: clear_all(board); return LORA_OK;
    case LORA_FAULT_LINK_DOWN:
    case LORA_FAULT_LINK_FLIP:
    case LORA_FAULT_LINK_GARBLE:
    case LORA_FAULT_LINK_CONFIG:
        return a < LORA_PORTS ? set_port(&board->ports[a], kind, b, c) : LORA_ERR_ARGUMENT;
    case LORA_FAULT_UNIT_STUCK:
        if (a >= LORA_UNITS) return LORA_ERR_ARGUMENT;
        board->stuck_units |= 1u << a;
        if (a != LORA_UNIT_ROUTER) return LORA_OK;
        board->router.stuck = true;
        board->router.stuck_after = b;
        return LORA_OK;
    case LORA_FAULT_COMPLETION_LOST: board->completion_lost = true; return LORA_OK;
    case LORA_FAULT_DONE_LOST: board->done_lost = true; return LORA_OK;
    case LORA_FAULT_FIRMWARE_DEAD: board->firmware_dead = true; return LORA_OK;
    case LORA_FAULT_MISFILE: board->router.misfile = frame_fault(b, c); return LORA_OK;
    case LORA_FAULT_BOARD_LOST: board->lost = true; return LORA_OK;
    default: return LORA_ERR_ARGUMENT;
    }
}

int lora_emu_fault(uint32_t cluster, uint32_t board, uint32_t kind, uint32_t a, uint32_t b,
                   uint32_t c) {
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found) return LORA_ERR_ARGUMENT;
    int status = LORA_ERR_ARGUMENT;
    if (board < found->boards) {
        status = set_fault(&found->board[board], kind & ~(uint32_t)LORA_FAULT_UNTIL_RESET, a, b, c);
        if (!status && (kind & LORA_FAULT_UNTIL_RESET)) found->board[board].until_reset = true;
        for (uint32_t p = 0; p < LORA_PORTS; p++) emu_port_refresh(&found->board[board].ports[p]);
        for (uint32_t i = 0; i < found->boards; i++) emu_wake(&found->board[i]);
    }
    emu_cluster_release(found);
    return status;
}

/* Fault knobs. A fault belongs to the board's hardware: it outlives programs, and resets too unless
 * it was injected to last until one. */
#include "board.h"

#include <string.h>

/* Frames under way stay where they are. */
static void cross_cables(struct emu_board *board) {
    struct emu_port *a = &board->ports[0], *b = &board->ports[1];
    struct emu_port *far_a = a->peer, *far_b = b->peer;
    if (far_a == b) return;
    a->peer = far_b;
    b->peer = far_a;
    if (far_a) far_a->peer = b;
    if (far_b) far_b->peer = a;
    board->control_faults.cables_crossed = !board->control_faults.cables_crossed;
    for (uint32_t i = 0; i < board->cluster->boards; i++)
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            emu_port_refresh(&board->cluster->board[i].ports[p]);
}

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
    if (board->control_faults.cables_crossed) cross_cables(board);
    board->control_faults = (struct emu_control_faults){0};
    emu_write_fault_set(board, 0, 0, 0);
}

void emu_board_return(struct emu_board *board) {
    struct emu_control_faults *faults = &board->control_faults;
    if (!board->lost || faults->resets_away == 0 || --faults->resets_away > 0) return;
    board->lost = false;
    emu_memory_clear(&board->memory);
    emu_ecc_heal(board);
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
    if (kind == LORA_FAULT_LINK_DROP) faults->drop = frame_fault(b, c);
    if (kind == LORA_FAULT_LINK_DUPLICATE) faults->duplicate = frame_fault(b, c);
    if (kind == LORA_FAULT_LINK_REORDER) faults->reorder = frame_fault(b, c);
    if (kind == LORA_FAULT_LINK_STALE) faults->stale = frame_fault(b, c);
    if (kind == LORA_FAULT_LINK_DELAY) {
        faults->delay = frame_fault(b, 1);
        faults->delay_cycles = emu_cycles(port->board->cluster, c);
    }
    if (kind == LORA_FAULT_LINK_CONFIG) {
        faults->configured = true;
        faults->configuration = b;
    }
    return LORA_OK;
}

static int fail_unit(struct emu_control_faults *faults, uint32_t unit, uint32_t pass,
                     bool forgets) {
    if (unit >= LORA_UNITS) return LORA_ERR_ARGUMENT;
    faults->commands_to_failure[unit] = pass + 1;
    if (forgets) faults->forgetful_units |= 1u << unit;
    else faults->forgetful_units &= ~(1u << unit);
    return LORA_OK;
}

static int set_control(struct emu_board *board, uint32_t kind, uint32_t a, uint32_t b) {
    struct emu_control_faults *faults = &board->control_faults;
    uint64_t now = board->cluster->now;
    switch (kind) {
    case LORA_FAULT_UNIT_SLOW:
        if (a >= LORA_UNITS || a == LORA_UNIT_ROUTER) return LORA_ERR_ARGUMENT;
        faults->slow_units |= 1u << a;
        faults->slow_cycles[a] = emu_cycles(board->cluster, b);
        return LORA_OK;
    case LORA_FAULT_RECORD_STEP: faults->record_steps = 1; return LORA_OK;
    case LORA_FAULT_RECORD_EPOCH: faults->record_epochs = 1; return LORA_OK;
    case LORA_FAULT_DONE_EARLY: faults->done_early = true; return LORA_OK;
    case LORA_FAULT_FIRMWARE_RESET:
        faults->firmware_resets = true;
        faults->polls_to_reset = a;
        return LORA_OK;
    case LORA_FAULT_FIRMWARE_STALL:
        faults->stalled_until = now + emu_cycles(board->cluster, a);
        return LORA_OK;
    case LORA_FAULT_REGISTERS_ONES: faults->registers_ones = true; return LORA_OK;
    case LORA_FAULT_UNIT_FAILS:
    case LORA_FAULT_UNIT_FORGETS: return fail_unit(faults, a, b, kind == LORA_FAULT_UNIT_FORGETS);
    case LORA_FAULT_START_LOST: faults->start_lost = true; return LORA_OK;
    case LORA_FAULT_CLOCK_JUMP:
        faults->clock_jumps = true;
        faults->polls_to_jump = a;
        faults->jump_cycles = emu_cycles(board->cluster, 1000ull * b);
        return LORA_OK;
    case LORA_FAULT_READ_FAILS: faults->reads_to_failure = a + 1; return LORA_OK;
    default: return LORA_ERR_ARGUMENT;
    }
}

static int set_fault(struct emu_board *board, uint32_t kind, uint32_t a, uint32_t b, uint32_t c) {
    switch (kind) {
    case LORA_FAULT_NONE:
        clear_all(board);
        emu_ecc_heal(board);
        return LORA_OK;
    case LORA_FAULT_ECC_SINGLE:
    case LORA_FAULT_ECC_DOUBLE: return emu_ecc_flip(board, a, b, c, kind == LORA_FAULT_ECC_DOUBLE);
    case LORA_FAULT_BLIND: board->blind = a; return LORA_OK;
    case LORA_FAULT_ECC_OFF: board->ecc.off = true; return LORA_OK;
    case LORA_FAULT_LINK_DOWN:
    case LORA_FAULT_LINK_FLIP:
    case LORA_FAULT_LINK_GARBLE:
    case LORA_FAULT_LINK_CONFIG:
    case LORA_FAULT_LINK_DROP:
    case LORA_FAULT_LINK_DUPLICATE:
    case LORA_FAULT_LINK_REORDER:
    case LORA_FAULT_LINK_STALE:
    case LORA_FAULT_LINK_DELAY:
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
    case LORA_FAULT_BOARD_LOST:
        board->lost = true;
        board->control_faults.resets_away = a;
        return LORA_OK;
    case LORA_FAULT_LINK_SWAP: cross_cables(board); return LORA_OK;
    case LORA_FAULT_WRITE_FAILS:
    case LORA_FAULT_WRITE_LOST:
    case LORA_FAULT_WRITE_SHORT:
    case LORA_FAULT_WRITE_MISPLACED:
    case LORA_FAULT_WRITE_TWICE: emu_write_fault_set(board, kind, a, b); return LORA_OK;
    default: return set_control(board, kind, a, b);
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

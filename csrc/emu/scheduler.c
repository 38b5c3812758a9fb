/* Board time and the scheduler: slices in which every board's firmware, units and links do what
 * they can; when nothing more moves, the kernels that were started run, all boards' at once. Time
 * passes only through sleep and, a little, through work,
 * so a run is the same whatever the machine's speed. */
#include "board.h"

#define SLICE_CYCLES 16
#define MAX_SLICES 20000 /* then the host gets a look, even if firmware never stops */

uint64_t emu_cycles(const struct emu_cluster *cluster, uint64_t microseconds) {
    return microseconds * cluster->clock_hz / 1000000;
}

static void run_board(struct emu_board *board) {
    if (!board->programmed) return;
    emu_router_pump(board);
    if (board->firmware_dead) return;
    emu_hal_bind(board);
    if (fw_poll(board->firmware) == LORA_FW_RUNNING) board->cluster->activity++;
}

static bool run_slice(struct emu_cluster *cluster) {
    uint64_t before = cluster->activity;
    for (uint32_t i = 0; i < cluster->boards; i++) run_board(&cluster->board[i]);
    emu_hal_bind(NULL);
    if (cluster->activity == before && !emu_units_run(cluster)) return false;
    cluster->now += SLICE_CYCLES;
    return true;
}

static bool is_done(const struct emu_board *board) {
    return board->control[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE;
}

void emu_run(struct emu_cluster *cluster, const struct emu_board *until_done) {
    for (uint32_t slice = 0; slice < MAX_SLICES; slice++) {
        if (until_done && is_done(until_done)) return;
        if (!run_slice(cluster)) return;
    }
}

/* What can happen at once happens before time passes, and what time brings about, after. */
void emu_sleep(struct emu_cluster *cluster, uint32_t microseconds) {
    emu_run(cluster, NULL);
    cluster->now += emu_cycles(cluster, microseconds);
    for (uint32_t i = 0; i < cluster->boards; i++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) emu_port_refresh(&cluster->board[i].ports[p]);
    emu_run(cluster, NULL);
}

/* The lock is free between two calls, so other threads' register reads wait for one slice at most,
 * never for a whole run. */
int lora_emu_advance(uint32_t id, uint32_t microseconds, uint32_t *moved) {
    struct emu_cluster *cluster = emu_cluster_acquire(id);
    if (!cluster) return LORA_ERR_ARGUMENT;
    cluster->now += emu_cycles(cluster, microseconds);
    for (uint32_t i = 0; microseconds && i < cluster->boards; i++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) emu_port_refresh(&cluster->board[i].ports[p]);
    *moved = run_slice(cluster);
    emu_cluster_release(cluster);
    return LORA_OK;
}

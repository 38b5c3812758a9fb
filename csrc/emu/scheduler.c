/* Board time and the scheduler. In a slice the links and the firmware of every board that is awake
 * do what they can. When nothing more moves, the kernels started so far run, those of all boards
 * together. Time passes only through sleep and, a little, through work, so a run does not depend on
 * the machine's speed. */
#include "board.h"
#include "far.h"

uint64_t emu_cycles(const struct emu_cluster *cluster, uint64_t microseconds) {
    return microseconds * cluster->clock_hz / 1000000;
}

static bool links_awake(const struct emu_cluster *cluster) {
    for (uint32_t i = 0; i < cluster->boards; i++)
        if (cluster->board[i].links_awake) return true;
    return false;
}

/* Links settle before firmware looks: a gather wakes it when segments are complete, not by
 * frame. */
static bool run_links(struct emu_cluster *cluster) {
    if (!links_awake(cluster)) return false;
    uint64_t began = emu_profiler_begin(&cluster->profiler);
    if (!emu_gather_direct(cluster)) emu_router_settle(cluster);
    emu_profiler_end(&cluster->profiler, &cluster->profiler.tally, EMU_LINKS, began);
    return true;
}

static bool run_slice(struct emu_cluster *cluster) {
    bool moved = run_links(cluster);
    if (emu_boards_poll(cluster)) moved = true;
    if (cluster->has_far) emu_far_notify(cluster);
    if (!moved && !emu_units_run(cluster)) return false;
    cluster->now += cluster->control->slice_cycles;
    return true;
}

void emu_run(struct emu_cluster *cluster, const struct emu_board *until_done) {
    for (uint32_t slice = 0; slice < cluster->control->most_slices; slice++) {
        if (emu_is_done(until_done)) return;
        if (!run_slice(cluster)) return;
    }
}

void emu_run_to_token(struct emu_cluster *cluster, const struct emu_board *board) {
    for (uint32_t slice = 0; slice < cluster->control->most_slices; slice++) {
        if (emu_has_news(board) || emu_is_done(board)) return;
        if (!run_slice(cluster)) return;
    }
}

/* As long as nothing is there that the host, which follows the run, has not seen. */
static void run_unseen(struct emu_cluster *cluster) {
    for (uint32_t slice = 0; slice < cluster->control->most_slices; slice++) {
        for (uint32_t i = 0; i < cluster->boards; i++)
            if (cluster->board[i].followed && emu_has_news(&cluster->board[i])) return;
        if (!run_slice(cluster)) return;
    }
}

/* Boards that tell how time passes work meanwhile. */
static void run_until(struct emu_cluster *cluster, uint64_t until) {
    while (cluster->now < until && run_slice(cluster)) continue;
}

/* Time has passed: channels come up, watchdogs end. */
static void wake_all(struct emu_cluster *cluster) {
    for (uint32_t i = 0; i < cluster->boards; i++) {
        emu_wake(&cluster->board[i]);
        for (uint32_t p = 0; p < LORA_PORTS; p++) emu_port_refresh(&cluster->board[i].ports[p]);
    }
}

/* What can happen at once happens before time passes, and what time brings about, after. */
void emu_sleep(struct emu_cluster *cluster, uint32_t microseconds) {
    run_unseen(cluster);
    uint64_t until = cluster->now + emu_cycles(cluster, microseconds);
    if (!cluster->control->slice_cycles) run_until(cluster, until);
    if (cluster->now < until) cluster->now = until;
    wake_all(cluster);
    run_unseen(cluster);
}

/* The lock is free between two calls, so other threads' register reads wait for a slice, or for the
 * few that polls.c makes of gathers without frames, never for a whole run. */
int lora_emu_advance(uint32_t id, uint32_t microseconds, uint32_t *moved) {
    struct emu_cluster *cluster = emu_cluster_acquire(id);
    if (!cluster) return LORA_ERR_ARGUMENT;
    cluster->now += emu_cycles(cluster, microseconds);
    if (microseconds) wake_all(cluster);
    *moved = run_slice(cluster);
    emu_cluster_release(cluster);
    return LORA_OK;
}

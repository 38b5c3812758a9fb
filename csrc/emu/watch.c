/* What the watch tells, in nanoseconds: its counter and its own cost are measured when it is turned
 * on. */
#define _POSIX_C_SOURCE 199309L
#include "board.h"

#include <time.h>

#define READINGS 20000 /* of a measurement: under a millisecond */

uint64_t emu_clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void measure(struct emu_watch *watch) {
    struct emu_watch trial = {.on = true};
    uint64_t ticks = emu_ticks(), ns = emu_clock_ns();
    for (uint32_t i = 0; i < READINGS; i++)
        emu_watch_end(&trial, &trial.tally, EMU_KERNELS, emu_watch_begin(&trial));
    ticks = emu_ticks() - ticks;
    ns = emu_clock_ns() - ns;
    watch->tick_ns = ticks ? (double)ns / (double)ticks : 1.0;
    watch->spare_ns = (double)(ticks - trial.tally.ticks[EMU_KERNELS]) * watch->tick_ns / READINGS;
}

int lora_emu_watch(uint32_t cluster, uint32_t on) {
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found) return LORA_ERR_ARGUMENT;
    if (on && !found->watch.on) measure(&found->watch);
    found->watch.on = on != 0;
    emu_cluster_release(found);
    return LORA_OK;
}

int lora_emu_times(uint32_t cluster, struct lora_emu_times *times) {
    struct emu_cluster *found = times ? emu_cluster_acquire(cluster) : NULL;
    if (!found) return LORA_ERR_ARGUMENT;
    const struct emu_watch *watch = &found->watch;
    const struct emu_tally *tally = &watch->tally;
    times->kernels_ns = (uint64_t)((double)tally->ticks[EMU_KERNELS] * watch->tick_ns);
    times->moves_ns = (uint64_t)((double)tally->ticks[EMU_MOVES] * watch->tick_ns);
    times->links_ns = (uint64_t)((double)tally->ticks[EMU_LINKS] * watch->tick_ns);
    times->watch_ns = (uint64_t)((double)tally->readings * watch->spare_ns);
    emu_cluster_release(found);
    return LORA_OK;
}

/* The profiler's counter in nanoseconds, and its own cost. */
#define _POSIX_C_SOURCE 199309L
#include "profiler.h"

#include <time.h>

#define READINGS 20000 /* of a measurement: under a millisecond */

uint64_t emu_clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void emu_profiler_calibrate(struct emu_profiler *profiler) {
    struct emu_profiler trial = {.on = true};
    uint64_t ticks = emu_ticks(), ns = emu_clock_ns();
    for (uint32_t i = 0; i < READINGS; i++)
        emu_profiler_end(&trial, &trial.tally, EMU_KERNELS, emu_profiler_begin(&trial));
    ticks = emu_ticks() - ticks;
    ns = emu_clock_ns() - ns;
    profiler->tick_ns = ticks ? (double)ns / (double)ticks : 1.0;
    profiler->spare_ns = (double)(ticks - trial.tally.ticks[EMU_KERNELS]) * profiler->tick_ns /
                         READINGS;
}

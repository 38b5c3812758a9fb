/* A profiler of the units' work. It reads the processor's own counter: many kernels are shorter
 * than a call of the system's clock. */
#ifndef EMU_PROFILER_H
#define EMU_PROFILER_H

#include <stdbool.h>
#include <stdint.h>

enum emu_work { EMU_KERNELS, EMU_MOVES, EMU_LINKS, EMU_WORKS };

struct emu_tally {
    uint64_t readings;
    uint64_t ticks[EMU_WORKS];
};

struct emu_profiler {
    bool on;
    double tick_ns;  /* of the counter */
    double spare_ns; /* that one reading takes, beyond what it counts as work */
    struct emu_tally tally;
};

uint64_t emu_clock_ns(void);
/* Measures tick_ns and spare_ns. */
void emu_profiler_calibrate(struct emu_profiler *profiler);

static inline uint64_t emu_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return emu_clock_ns();
#endif
}

static inline uint64_t emu_profiler_begin(const struct emu_profiler *profiler) {
    return profiler->on ? emu_ticks() : 0;
}

/* `tally`: the profiler's own, or a board's while boards are polled. */
static inline void emu_profiler_end(const struct emu_profiler *profiler, struct emu_tally *tally,
                                    enum emu_work work, uint64_t began) {
    if (!profiler->on) return;
    tally->ticks[work] += emu_ticks() - began;
    tally->readings++;
}

static inline void emu_tally_add(struct emu_tally *tally, const struct emu_tally *more) {
    tally->readings += more->readings;
    for (uint32_t work = 0; work < EMU_WORKS; work++) tally->ticks[work] += more->ticks[work];
}

#endif

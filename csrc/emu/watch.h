/* A watch on the units' work, for measurements: the processor's own counter, since many kernels are
 * shorter than a question to the system's clock. */
#ifndef EMU_WATCH_H
#define EMU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum emu_work { EMU_KERNELS, EMU_MOVES, EMU_LINKS, EMU_WORKS };

struct emu_tally {
    uint64_t readings;
    uint64_t ticks[EMU_WORKS];
};

struct emu_watch {
    bool on;
    double tick_ns;  /* of the counter */
    double spare_ns; /* that one reading of the watch takes, beyond what it counts as work */
    struct emu_tally tally;
};

uint64_t emu_clock_ns(void);

static inline uint64_t emu_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return emu_clock_ns();
#endif
}

static inline uint64_t emu_watch_begin(const struct emu_watch *watch) {
    return watch->on ? emu_ticks() : 0;
}

/* `tally`: the watch's own, or a board's while boards are polled. */
static inline void emu_watch_end(const struct emu_watch *watch, struct emu_tally *tally,
                                 enum emu_work work, uint64_t began) {
    if (!watch->on) return;
    tally->ticks[work] += emu_ticks() - began;
    tally->readings++;
}

static inline void emu_tally_add(struct emu_tally *tally, const struct emu_tally *more) {
    tally->readings += more->readings;
    for (uint32_t work = 0; work < EMU_WORKS; work++) tally->ticks[work] += more->ticks[work];
}

#endif

/* A watch on the units' work, for measurements: the processor's own counter, since many kernels are
 * shorter than a question to the system's clock. */
#ifndef EMU_WATCH_H
#define EMU_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum emu_work { EMU_KERNELS, EMU_MOVES, EMU_LINKS, EMU_WORKS };

struct emu_watch {
    bool on;
    double tick_ns;  /* of the counter */
    double spare_ns; /* that one reading of the watch takes, beyond what it counts as work */
    uint64_t readings;
    uint64_t ticks[EMU_WORKS];
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

static inline void emu_watch_end(struct emu_watch *watch, enum emu_work work, uint64_t began) {
    if (!watch->on) return;
    watch->ticks[work] += emu_ticks() - began;
    watch->readings++;
}

#endif

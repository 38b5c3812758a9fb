/* How many of a pool's workers take part while other programs want the CPUs. A thread that loses
 * its CPU within an item holds up all others. Where that takes much of the time, fewer threads are
 * faster. */
#ifndef LORA_CONTENTION_H
#define LORA_CONTENTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct contention {
    atomic_uint active;         /* workers that take part: threads 1 to active */
    _Atomic uint64_t lost_ns;   /* that threads could have run and had no CPU, as noted so far */
    uint32_t workers, runs;     /* from here on the caller's; runs: since the pool was made */
    uint64_t window, lost_then; /* begin of the window, lost_ns there */
    uint64_t trial;             /* end of the time after one more worker was let in */
    uint64_t retry, pause_ns;   /* when one more is let in, and how long that takes */
};

/* What a thread knows of itself since its last look. */
struct thread_time {
    uint32_t runs;
    uint64_t wall_ns, cpu_ns;
    long sleeps, switches;
};

void contention_init(struct contention *contention);
/* Before the first run: all `workers` take part. */
void contention_start(struct contention *contention, uint32_t workers);
/* Begins a thread's time anew, after a sleep. */
bool contention_look(struct thread_time *time);
/* A thread has worked for a run. Looks at its time once in a while. */
void contention_note(struct contention *contention, struct thread_time *time);
/* The caller, before a run. True: one more worker takes part from now on, wake it. */
bool contention_decide(struct contention *contention);

static inline uint32_t contention_active(const struct contention *contention) {
    return atomic_load_explicit(&contention->active, memory_order_relaxed);
}

#endif

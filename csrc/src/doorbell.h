/* Starting lora_ctrl through its registers with as few accesses as can be, and the counts of them.
 * For transports of boards whose registers lie behind a bus. */
#ifndef LORA_DOORBELL_H
#define LORA_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

#include "lora/abi.h"
#include "lora/transport.h"

#define LORA_ARGUMENTS 11

struct lora_doorbell { /* what the host knows of a board's registers; all 0: nothing */
    uint32_t arguments[LORA_ARGUMENTS];
    uint32_t known; /* bit i: arguments[i] is what the register holds */
    uint32_t idle;  /* the last access to AP_CTRL found it so */
};

/* Writes the arguments that differ from the last run's, then the start bit. Whether the board is
 * idle is read only where no poll has seen the end of the last run. */
int lora_doorbell_ring(struct lora_doorbell *bell, const struct lora_transport *transport,
                       void *handle, const uint32_t arguments[LORA_ARGUMENTS],
                       struct lora_failure *failure);
/* What a poll has read from AP_CTRL. */
static inline uint32_t lora_doorbell_polled(struct lora_doorbell *bell, uint32_t control) {
    if (!(control & LORA_AP_DONE)) return LORA_RUN_BUSY;
    bell->idle = (control & LORA_AP_IDLE) != 0;
    return LORA_RUN_DONE;
}

/* Several threads write memory at once while a model is loaded. */
struct lora_access_counts {
    atomic_ullong register_reads, register_writes, memory_reads, memory_writes;
};

static inline void lora_count(atomic_ullong *count) {
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

static inline void lora_accesses_of(struct lora_access_counts *counts,
                                    struct lora_accesses *found) {
    *found = (struct lora_accesses){.register_reads = atomic_load(&counts->register_reads),
                                    .register_writes = atomic_load(&counts->register_writes),
                                    .memory_reads = atomic_load(&counts->memory_reads),
                                    .memory_writes = atomic_load(&counts->memory_writes)};
}

#endif

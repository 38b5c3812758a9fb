/* Weights of matmuls that a thread runs by itself, because every thread has boards of its own. Such
 * a thread meets the same matmuls step by step, so while it waits it fetches what it will read
 * next. No other thread reads or writes this. */
#ifndef LORA_KERNELS_PREFETCH_OWN_H
#define LORA_KERNELS_PREFETCH_OWN_H

#include "units/job.h"

#define OWN_MATMULS 512     /* of a step; beyond, learning begins anew */
#define OWN_FIRST_BLOCKS 32 /* of a matmul: 256 KiB of FP16 */

struct own_matmul {
    uint64_t key;
    uint32_t following;                       /* the one that came after it last time */
    uint32_t count, group, parts;             /* blocks; of a tile; chunks of a block */
    uint32_t fetched;                         /* chunks, since it ran last */
    const uint16_t *blocks[OWN_FIRST_BLOCKS]; /* those that it reads first */
};

struct own_order {
    _Alignas(LORA_LINE_BYTES) uint32_t used, last;
    struct own_matmul matmuls[OWN_MATMULS]; /* the first stands for none */
};

void own_order_init(struct own_order *order);
/* `job` is about to run. Returns the matmul that came after it last time, which may have no
 * blocks. */
const struct own_matmul *own_order_note(struct own_order *order, const struct lora_job *job);
/* The same, after the one that ran last. */
const struct own_matmul *own_order_next(const struct own_order *order);
/* One more chunk; false: all is fetched. */
bool own_order_fetch(struct own_order *order);

#endif

/* Weights that idle threads prefetch for the next matmul. A step's matmuls come in the order of the
 * last step's, so an idle thread knows what it will read first in the next one. Memory is then busy
 * also while firmware, vector operations and the caller run. Prefetches are hints: results do not
 * depend on them, and a wrong guess costs its bytes. */
#ifndef LORA_KERNELS_PREFETCH_H
#define LORA_KERNELS_PREFETCH_H

#include "units/job.h"

struct lora_pool;

/* A batch's matmuls are about to run. From now on, idle threads of the pool fetch for the matmuls
 * that came after these last time. */
void lora_prefetch_note(struct lora_pool *pool, const struct lora_job *jobs, uint32_t count);
/* A matmul is about to run within an item that this thread has of the pool. Returns the one that
 * came after it last time on this thread, without blocks where that is not known. NULL: the pool
 * has had no batch yet. */
const struct own_matmul *lora_prefetch_note_own(struct lora_pool *pool, uint32_t thread,
                                                const struct lora_job *job);
/* The i-th block that is fetched now for a thread; NULL: there is none. */
const uint16_t *lora_prefetch_block(const struct lora_pool *pool, uint32_t thread, uint32_t i);
/* The same of the matmul that a thread runs next by itself. */
const uint16_t *lora_prefetch_own_block(const struct lora_pool *pool, uint32_t thread, uint32_t i);

#endif

/* Weights fetched ahead of their product. A step's products come in the same order as the last one's,
 * so a thread without an item can fetch what it will read first in the next of them: memory is busy
 * also while firmware, vectors and the listener have their turn. Hints only: results do not depend
 * on them, and a wrong guess costs nothing but its bytes. */
#ifndef LORA_KERNELS_AHEAD_H
#define LORA_KERNELS_AHEAD_H

#include "units/job.h"

struct lora_pool;

/* A batch's products are about to run: those that came after them last time are fetched from now on,
 * whenever a thread of the pool has nothing else to do. */
void lora_ahead_note(struct lora_pool *pool, const struct lora_job *jobs, uint32_t count);
/* The i-th block that is fetched now for a thread; NULL: there is none. */
const uint16_t *lora_ahead_block(const struct lora_pool *pool, uint32_t thread, uint32_t i);

#endif

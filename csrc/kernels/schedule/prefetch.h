/* Weights that idle threads prefetch for the next matmul. A step's matmuls come in the order of the
 * last step's, so an idle thread knows what it will read first in the next one. Memory is then busy
 * also while firmware, vector operations and the caller run. Prefetches are hints: results do not
 * depend on them, and a wrong guess costs its bytes. */
#ifndef LORA_KERNELS_PREFETCH_H
#define LORA_KERNELS_PREFETCH_H

#include "units/job.h"

#define PREFETCH_CHUNK_BYTES 1024 /* between two looks for work: some 50 ns */

struct lora_pool;

/* A batch's matmuls are about to run. From now on, idle threads of the pool fetch for the matmuls
 * that came after these last time. */
void lora_prefetch_note(struct lora_pool *pool, const struct lora_job *jobs, uint32_t count);
/* A matmul is about to run within an item that this thread has of the pool. Returns the one that
 * came after it last time on this thread; NULL: not known. */
const struct own_matmul *lora_prefetch_note_own(struct lora_pool *pool, uint32_t thread,
                                                const struct lora_job *job);
/* The i-th block that is fetched now for a thread; NULL: there is none. */
const uint16_t *lora_prefetch_block(const struct lora_pool *pool, uint32_t thread, uint32_t i);
/* The same of the matmul that a thread runs next by itself. */
const uint16_t *lora_prefetch_own_block(const struct lora_pool *pool, uint32_t thread, uint32_t i);
/* What tells a matmul, the first of `count` jobs, from others. */
uint64_t prefetch_key(const struct lora_job *job, uint32_t count);

struct chunk {
    uint32_t block, offset; /* in bytes */
};

static inline uint32_t prefetch_parts(uint32_t block_bytes) {
    return (block_bytes + PREFETCH_CHUNK_BYTES - 1) / PREFETCH_CHUNK_BYTES;
}

/* A tile's blocks side by side, as its matmul reads them: `group` blocks of `parts` chunks each. */
static inline struct chunk prefetch_chunk(uint32_t group, uint32_t parts, uint32_t number) {
    uint32_t tile = number / (group * parts), within = number % (group * parts);
    return (struct chunk){tile * group + within % group, within / group * PREFETCH_CHUNK_BYTES};
}

static inline void prefetch_lines(const uint16_t *block, uint32_t offset) {
    const char *at = (const char *)block + offset;
    for (uint32_t line = 0; line < PREFETCH_CHUNK_BYTES; line += LORA_LINE_BYTES)
        __builtin_prefetch(at + line, 0, 2);
}

#endif

/* What is fetched ahead of a matmul: its weights in chunks, in the order in which it reads them. */
#ifndef LORA_KERNELS_PREFETCH_CHUNK_H
#define LORA_KERNELS_PREFETCH_CHUNK_H

#include "units/job.h"

#define PREFETCH_CHUNK_BYTES 1024 /* between two looks for work: some 50 ns */

/* What tells a matmul, the first of `count` jobs, from others. */
static inline uint64_t prefetch_key(const struct lora_job *job, uint32_t count) {
    const struct lora_matrix *c = job->matrix.command;
    const uint64_t prime = 0x9e3779b97f4a7c15;
    uint64_t key = (uint64_t)(uintptr_t)job->call->banks + count;
    key = (key ^ c->weight_line) * prime;
    key = (key ^ ((uint64_t)c->first << 16 | c->bank_first)) * prime;
    return (key ^ ((uint64_t)c->k << 32 | c->n)) | 1;
}

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

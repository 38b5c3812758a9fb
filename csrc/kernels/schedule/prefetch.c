/* Learns the order of the matmuls as they come; idle threads fetch the weights of the next one.
 * Only the caller of the pool writes here. Workers prefetch addresses and never dereference
 * them. */
#include "prefetch.h"

#include <stdlib.h>

#include "lora/pool.h"
#include "prefetch_chunk.h"
#include "prefetch_own.h"
#include "units/matrix.h"

#define MAX_BATCHES 1024 /* of a step; beyond, learning begins anew */
#define BLOCKS 256       /* of all threads: two megabytes, for the second and third caches */
#define NOTHING 0        /* the batch that has no blocks */

struct batch_order { /* side by side: a step's batches come in this order */
    uint64_t key;
    uint32_t following; /* the batch that came after it last time */
};

struct batch_blocks {
    atomic_uint threads, group, parts; /* blocks of a tile, chunks of a block */
    atomic_uint counts[LORA_POOL_THREADS];
    _Atomic(const uint16_t *) blocks[BLOCKS];
};

struct thread_progress { /* a word of its own line: how much of which round is fetched */
    _Alignas(LORA_LINE_BYTES) _Atomic uint64_t round_and_chunk;
};

struct prefetcher {
    _Alignas(LORA_LINE_BYTES) _Atomic uint64_t round_and_batch; /* what is to be fetched now */
    uint32_t round, last, used;
    struct batch_order order[MAX_BATCHES];
    struct thread_progress progress[LORA_POOL_THREADS];
    struct batch_blocks batches[MAX_BATCHES];
    struct own_order own[LORA_POOL_THREADS];
};

static const uint16_t *block_at(const struct batch_blocks *batch, uint32_t thread, uint32_t i) {
    uint32_t threads = atomic_load_explicit(&batch->threads, memory_order_relaxed);
    if (thread >= threads ||
        i >= atomic_load_explicit(&batch->counts[thread], memory_order_relaxed))
        return NULL;
    i += thread * (BLOCKS / threads);
    return atomic_load_explicit(&batch->blocks[i % BLOCKS], memory_order_relaxed);
}

static void fetch_chunk(const struct batch_blocks *batch, uint32_t thread, uint32_t number) {
    struct chunk chunk = prefetch_chunk(atomic_load_explicit(&batch->group, memory_order_relaxed),
                                        atomic_load_explicit(&batch->parts, memory_order_relaxed),
                                        number);
    const uint16_t *block = block_at(batch, thread, chunk.block);
    if (block) prefetch_lines(block, chunk.offset);
}

/* The next chunk of what this thread will read first. It leaves alone what other threads will read:
 * from this core's cache they would get it later than from the shared one. */
static bool fetch(void *context, uint32_t thread) {
    struct prefetcher *prefetcher = context;
    if (own_order_fetch(&prefetcher->own[thread])) return true;
    uint64_t current = atomic_load(&prefetcher->round_and_batch);
    const struct batch_blocks *batch = &prefetcher->batches[(uint32_t)current];
    if (thread >= atomic_load_explicit(&batch->threads, memory_order_relaxed)) return false;
    uint64_t round = current >> 32;
    uint64_t progress = atomic_load_explicit(&prefetcher->progress[thread].round_and_chunk,
                                             memory_order_relaxed);
    uint32_t chunk = progress >> 32 == round ? (uint32_t)progress : 0;
    uint32_t count = atomic_load_explicit(&batch->counts[thread], memory_order_relaxed) *
                     atomic_load_explicit(&batch->parts, memory_order_relaxed);
    if (chunk >= count) return false;
    atomic_store_explicit(&prefetcher->progress[thread].round_and_chunk, round << 32 | (chunk + 1),
                          memory_order_relaxed);
    fetch_chunk(batch, thread, chunk);
    return true;
}

const uint16_t *lora_prefetch_block(const struct lora_pool *pool, uint32_t thread, uint32_t i) {
    const struct prefetcher *prefetcher = lora_pool_idle_context(pool);
    return prefetcher
               ? block_at(&prefetcher->batches[(uint32_t)atomic_load(&prefetcher->round_and_batch)],
                          thread, i)
               : NULL;
}

static bool is_matmul(const struct lora_job *job) {
    return job->items && job->call->command->opcode == LORA_CMD_MATRIX;
}

static void learn_thread(struct batch_blocks *batch, const struct lora_job *jobs, uint32_t count,
                         uint32_t thread) {
    const uint16_t *blocks[BLOCKS];
    uint32_t threads = jobs->threads, max = BLOCKS / threads, found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (is_matmul(&jobs[i]))
            found += lora_matrix_first_blocks(&jobs[i], thread, blocks + found, max - found);
    for (uint32_t i = 0; i < found; i++)
        atomic_store_explicit(&batch->blocks[thread * max + i], blocks[i], memory_order_relaxed);
    atomic_store_explicit(&batch->counts[thread], found, memory_order_relaxed);
}

static uint32_t learn(struct prefetcher *prefetcher, const struct lora_job *jobs, uint32_t count,
                      uint64_t key) {
    if (prefetcher->used == MAX_BATCHES) prefetcher->used = NOTHING + 1;
    uint32_t at = prefetcher->used++;
    struct batch_blocks *batch = &prefetcher->batches[at];
    const struct lora_job *matmul = jobs;
    while (!is_matmul(matmul)) matmul++;
    uint32_t bytes = matmul->matrix.block_bytes;
    prefetcher->order[at] = (struct batch_order){key, NOTHING};
    atomic_store_explicit(&batch->group, matrix_k_blocks(matmul->matrix.command),
                          memory_order_relaxed);
    atomic_store_explicit(&batch->parts, prefetch_parts(bytes), memory_order_relaxed);
    for (uint32_t thread = 0; thread < jobs->threads; thread++)
        learn_thread(batch, jobs, count, thread);
    atomic_store_explicit(&batch->threads, jobs->threads, memory_order_relaxed);
    return at;
}

static uint32_t find(struct prefetcher *prefetcher, const struct lora_job *jobs, uint32_t count,
                     uint64_t key) {
    uint32_t expected = prefetcher->order[prefetcher->last].following;
    if (prefetcher->order[expected].key == key) return expected;
    for (uint32_t at = NOTHING + 1; at < prefetcher->used; at++)
        if (prefetcher->order[at].key == key) return at;
    return learn(prefetcher, jobs, count, key);
}

static struct prefetcher *prefetcher_of(struct lora_pool *pool) {
    struct prefetcher *prefetcher = lora_pool_idle_context(pool);
    if (prefetcher) return prefetcher;
    prefetcher = aligned_alloc(LORA_LINE_BYTES, sizeof *prefetcher);
    if (!prefetcher) return NULL;
    prefetcher->round = prefetcher->last = NOTHING;
    prefetcher->used = NOTHING + 1;
    prefetcher->order[NOTHING] = (struct batch_order){0, NOTHING};
    atomic_init(&prefetcher->batches[NOTHING].threads, 0);
    atomic_init(&prefetcher->round_and_batch, NOTHING);
    for (uint32_t thread = 0; thread < LORA_POOL_THREADS; thread++)
        atomic_init(&prefetcher->progress[thread].round_and_chunk, 0);
    for (uint32_t thread = 0; thread < lora_pool_threads(pool); thread++)
        own_order_init(&prefetcher->own[thread]);
    lora_pool_set_idle(pool, fetch, prefetcher);
    return prefetcher;
}

void lora_prefetch_note(struct lora_pool *pool, const struct lora_job *jobs, uint32_t count) {
    const struct lora_job *matmul = jobs;
    while (matmul < jobs + count && !is_matmul(matmul)) matmul++;
    if (matmul == jobs + count || jobs->threads > BLOCKS) return;
    struct prefetcher *prefetcher = prefetcher_of(pool);
    if (!prefetcher) return;
    uint32_t at = find(prefetcher, jobs, count, prefetch_key(matmul, count));
    if (prefetcher->last != NOTHING) prefetcher->order[prefetcher->last].following = at;
    prefetcher->last = at;
    uint64_t round = (uint64_t)++prefetcher->round << 32;
    atomic_store_explicit(&prefetcher->round_and_batch, round | prefetcher->order[at].following,
                          memory_order_release);
}

const struct own_matmul *lora_prefetch_note_own(struct lora_pool *pool, uint32_t thread,
                                                const struct lora_job *job) {
    struct prefetcher *prefetcher = lora_pool_idle_context(pool);
    return prefetcher ? own_order_note(&prefetcher->own[thread], job) : NULL;
}

const uint16_t *lora_prefetch_own_block(const struct lora_pool *pool, uint32_t thread, uint32_t i) {
    const struct prefetcher *prefetcher = lora_pool_idle_context(pool);
    const struct own_matmul *next = prefetcher ? own_order_next(&prefetcher->own[thread]) : NULL;
    return next && i < next->count ? next->blocks[i] : NULL;
}

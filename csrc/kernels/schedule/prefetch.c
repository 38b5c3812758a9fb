/* The order of the products, learned as they come, and what idle threads fetch of the next one. Only
 * the caller of the pool writes; workers read addresses, which they never follow. */
#include "prefetch.h"

#include <stdlib.h>

#include "lora/pool.h"
#include "units/matrix.h"

#define MOST_BATCHES 1024    /* of a step; beyond, learning begins anew */
#define BLOCKS 256           /* of all threads: two megabytes, for the second and third caches */
#define CHUNK_BYTES 1024     /* between two looks for work: some 50 ns */
#define NOTHING 0            /* the batch that has no blocks */

struct batch_order { /* side by side: a step's batches come in this order */
    uint64_t key;
    uint32_t following; /* the batch that came after it last time */
};

struct batch_blocks {
    atomic_uint threads, group, parts; /* blocks of a tile, chunks of a block */
    atomic_uint counts[LORA_POOL_THREADS];
    _Atomic(const uint16_t *) blocks[BLOCKS];
};

struct thread_place { /* a word of its own line: how much of which turn is fetched */
    _Alignas(LORA_LINE_BYTES) _Atomic uint64_t turn_and_chunk;
};

struct ahead {
    _Alignas(LORA_LINE_BYTES) _Atomic uint64_t turn_and_batch; /* what is to be fetched now */
    uint32_t turn, last, used;
    struct batch_order order[MOST_BATCHES];
    struct thread_place places[LORA_POOL_THREADS];
    struct batch_blocks batches[MOST_BATCHES];
};

static const uint16_t *block_at(const struct batch_blocks *batch, uint32_t thread, uint32_t i) {
    uint32_t threads = atomic_load_explicit(&batch->threads, memory_order_relaxed);
    if (thread >= threads ||
        i >= atomic_load_explicit(&batch->counts[thread], memory_order_relaxed))
        return NULL;
    i += thread * (BLOCKS / threads);
    return atomic_load_explicit(&batch->blocks[i % BLOCKS], memory_order_relaxed);
}

/* A tile's blocks side by side, as its product reads them. */
static void fetch_chunk(const struct batch_blocks *batch, uint32_t thread, uint32_t chunk) {
    uint32_t group = atomic_load_explicit(&batch->group, memory_order_relaxed);
    uint32_t parts = atomic_load_explicit(&batch->parts, memory_order_relaxed);
    uint32_t tile = chunk / (group * parts), within = chunk % (group * parts);
    const char *at = (const char *)block_at(batch, thread, tile * group + within % group);
    if (!at)
        return;
    at += (size_t)(within / group) * CHUNK_BYTES;
    for (uint32_t line = 0; line < CHUNK_BYTES; line += LORA_LINE_BYTES)
        __builtin_prefetch(at + line, 0, 2);
}

/* The next chunk of what the thread itself will read first. What others will read stays where it is:
 * they would have it from this core's cache, later than from the one that all share. */
static bool fetch(void *context, uint32_t thread) {
    struct ahead *ahead = context;
    uint64_t current = atomic_load(&ahead->turn_and_batch);
    const struct batch_blocks *batch = &ahead->batches[(uint32_t)current];
    if (thread >= atomic_load_explicit(&batch->threads, memory_order_relaxed))
        return false;
    uint64_t turn = current >> 32;
    uint64_t place = atomic_load_explicit(&ahead->places[thread].turn_and_chunk, memory_order_relaxed);
    uint32_t chunk = place >> 32 == turn ? (uint32_t)place : 0;
    uint32_t count = atomic_load_explicit(&batch->counts[thread], memory_order_relaxed) *
                     atomic_load_explicit(&batch->parts, memory_order_relaxed);
    if (chunk >= count)
        return false;
    atomic_store_explicit(&ahead->places[thread].turn_and_chunk, turn << 32 | (chunk + 1),
                          memory_order_relaxed);
    fetch_chunk(batch, thread, chunk);
    return true;
}

const uint16_t *lora_ahead_block(const struct lora_pool *pool, uint32_t thread, uint32_t i) {
    const struct ahead *ahead = lora_pool_spare_context(pool);
    return ahead ? block_at(&ahead->batches[(uint32_t)atomic_load(&ahead->turn_and_batch)], thread, i)
                 : NULL;
}

static bool is_product(const struct lora_job *job) {
    return job->items && job->call->command->opcode == LORA_CMD_MATRIX;
}

static uint64_t key_of(const struct lora_job *job, uint32_t count) {
    const struct lora_matrix *c = job->matrix.command;
    const uint64_t prime = 0x9e3779b97f4a7c15;
    uint64_t key = (uint64_t)(uintptr_t)job->call->banks + count;
    key = (key ^ c->weight_line) * prime;
    key = (key ^ ((uint64_t)c->first << 16 | c->bank_first)) * prime;
    return (key ^ ((uint64_t)c->k << 32 | c->n)) | 1;
}

static void learn_thread(struct batch_blocks *batch, const struct lora_job *jobs, uint32_t count,
                         uint32_t thread) {
    const uint16_t *blocks[BLOCKS];
    uint32_t threads = jobs->threads, most = BLOCKS / threads, found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (is_product(&jobs[i]))
            found += lora_matrix_first_blocks(&jobs[i], thread, blocks + found, most - found);
    for (uint32_t i = 0; i < found; i++)
        atomic_store_explicit(&batch->blocks[thread * most + i], blocks[i], memory_order_relaxed);
    atomic_store_explicit(&batch->counts[thread], found, memory_order_relaxed);
}

static uint32_t learn(struct ahead *ahead, const struct lora_job *jobs, uint32_t count,
                      uint64_t key) {
    if (ahead->used == MOST_BATCHES)
        ahead->used = NOTHING + 1;
    uint32_t at = ahead->used++;
    struct batch_blocks *batch = &ahead->batches[at];
    const struct lora_job *product = jobs;
    while (!is_product(product))
        product++;
    uint32_t bytes = product->matrix.block_bytes;
    ahead->order[at] = (struct batch_order){key, NOTHING};
    atomic_store_explicit(&batch->group, matrix_k_blocks(product->matrix.command),
                          memory_order_relaxed);
    atomic_store_explicit(&batch->parts, (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES,
                          memory_order_relaxed);
    for (uint32_t thread = 0; thread < jobs->threads; thread++)
        learn_thread(batch, jobs, count, thread);
    atomic_store_explicit(&batch->threads, jobs->threads, memory_order_relaxed);
    return at;
}

static uint32_t find(struct ahead *ahead, const struct lora_job *jobs, uint32_t count,
                     uint64_t key) {
    uint32_t expected = ahead->order[ahead->last].following;
    if (ahead->order[expected].key == key)
        return expected;
    for (uint32_t at = NOTHING + 1; at < ahead->used; at++)
        if (ahead->order[at].key == key)
            return at;
    return learn(ahead, jobs, count, key);
}

static struct ahead *ahead_of(struct lora_pool *pool) {
    struct ahead *ahead = lora_pool_spare_context(pool);
    if (ahead)
        return ahead;
    ahead = aligned_alloc(LORA_LINE_BYTES, sizeof *ahead);
    if (!ahead)
        return NULL;
    ahead->turn = ahead->last = NOTHING;
    ahead->used = NOTHING + 1;
    ahead->order[NOTHING] = (struct batch_order){0, NOTHING};
    atomic_init(&ahead->batches[NOTHING].threads, 0);
    atomic_init(&ahead->turn_and_batch, NOTHING);
    for (uint32_t thread = 0; thread < LORA_POOL_THREADS; thread++)
        atomic_init(&ahead->places[thread].turn_and_chunk, 0);
    lora_pool_spare(pool, fetch, ahead);
    return ahead;
}

void lora_ahead_note(struct lora_pool *pool, const struct lora_job *jobs, uint32_t count) {
    const struct lora_job *product = jobs;
    while (product < jobs + count && !is_product(product))
        product++;
    if (product == jobs + count || jobs->threads > BLOCKS)
        return;
    struct ahead *ahead = ahead_of(pool);
    if (!ahead)
        return;
    uint32_t at = find(ahead, jobs, count, key_of(product, count));
    if (ahead->last != NOTHING)
        ahead->order[ahead->last].following = at;
    ahead->last = at;
    uint64_t turn = (uint64_t)++ahead->turn << 32;
    atomic_store_explicit(&ahead->turn_and_batch, turn | ahead->order[at].following,
                          memory_order_release);
}

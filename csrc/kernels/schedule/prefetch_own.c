#include "prefetch_own.h"

#include "prefetch_chunk.h"
#include "units/matrix.h"

#define NO_MATMUL 0
#define MOST_AHEAD 4 /* matmuls: a megabyte at most, as a second cache has */

void own_order_init(struct own_order *order) {
    order->last = NO_MATMUL;
    order->used = NO_MATMUL + 1;
    order->matmuls[NO_MATMUL] = (struct own_matmul){.following = NO_MATMUL};
}

static uint32_t learn(struct own_order *order, const struct lora_job *job, uint64_t key) {
    if (order->used == OWN_MATMULS) own_order_init(order);
    struct own_matmul *matmul = &order->matmuls[order->used];
    matmul->key = key;
    matmul->following = NO_MATMUL;
    matmul->group = matrix_k_blocks(job->matrix.command);
    matmul->parts = prefetch_parts(job->matrix.block_bytes);
    matmul->count = lora_matrix_first_blocks(job, 0, matmul->blocks, OWN_FIRST_BLOCKS);
    return order->used++;
}

static uint32_t find(struct own_order *order, const struct lora_job *job, uint64_t key) {
    uint32_t expected = order->matmuls[order->last].following;
    if (order->matmuls[expected].key == key) return expected;
    for (uint32_t at = NO_MATMUL + 1; at < order->used; at++)
        if (order->matmuls[at].key == key) return at;
    return learn(order, job, key);
}

const struct own_matmul *own_order_note(struct own_order *order, const struct lora_job *job) {
    uint32_t at = find(order, job, prefetch_key(job, 1));
    if (order->last != NO_MATMUL) order->matmuls[order->last].following = at;
    order->last = at;
    order->matmuls[at].fetched = 0;
    return own_order_next(order);
}

const struct own_matmul *own_order_next(const struct own_order *order) {
    return &order->matmuls[order->matmuls[order->last].following];
}

bool own_order_fetch(struct own_order *order) {
    uint32_t at = order->last;
    for (uint32_t ahead = 0; ahead < MOST_AHEAD; ahead++) {
        at = order->matmuls[at].following;
        struct own_matmul *matmul = &order->matmuls[at];
        if (at == NO_MATMUL) return false;
        if (matmul->fetched >= matmul->count * matmul->parts) continue;
        struct chunk chunk = prefetch_chunk(matmul->group, matmul->parts, matmul->fetched++);
        if (chunk.block < matmul->count) prefetch_lines(matmul->blocks[chunk.block], chunk.offset);
        return true;
    }
    return false;
}

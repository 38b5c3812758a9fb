/* Attention over KV blocks: the maximum first, then the sums, tile by tile in logical order. */
#include <math.h>

#include "half.h"
#include "job.h"
#include "kv_widen.h"
#include "visible.h"

#define TILE LORA_TILE_POSITIONS
#define ITEMS_WANTED 8      /* of a call with few rows: heads are dealt */
#define PRODUCTS_PER_NS 10

struct attend {
    struct lora_unit_call *call;
    const struct lora_attention *command;
    const struct lora_variant *variant;
    struct visible seen;
    uint16_t *wide; /* [32][head_dim], where blocks are INT8; else NULL */
    float *q, *s, *e, *sum; /* [head_dim], [positions], [positions], [head_dim] */
};

/* A block of K as FP16: where it stands, or widened. NULL: out of range. */
static const uint16_t *keys(const struct attend *a, uint32_t page, uint32_t head) {
    const uint8_t *block = kv_block_at(a->call, a->command->kv_layer, page, head, 0);
    if (!block || !a->wide)
        return (const uint16_t *)(const void *)block;
    lora_kv_widen_keys(a->variant, block, a->command->head_dim, a->wide);
    return a->wide;
}

/* One position of a block of V as FP16, widened into place i. */
static const uint16_t *value(const struct attend *a, const uint8_t *block, uint32_t lane,
                             uint32_t i) {
    uint32_t head_dim = a->command->head_dim;
    if (!a->wide)
        return (const uint16_t *)(const void *)block + (uint64_t)lane * head_dim;
    uint16_t *wide = a->wide + (uint64_t)i * head_dim;
    lora_kv_widen_value(a->variant, block, head_dim, lane, wide);
    return wide;
}

/* s[position] of one query head, and how many there are. */
static int score_head(struct attend *a, uint32_t kv_head, float *largest) {
    float scale = float_of_bits(a->command->scale);
    uint32_t head_dim = a->command->head_dim;
    float block[SCRATCH_PAGES][TILE];
    for (uint32_t start = 0; start < a->seen.committed; start += TILE) {
        const uint16_t *k = keys(a, a->seen.pages[start / TILE], kv_head);
        if (!k)
            return LORA_ERR_ADDRESS;
        a->variant->scores(a->q, k, head_dim, a->s + start); /* lanes past the end: replaced */
    }
    for (uint32_t page = 0; page < SCRATCH_PAGES; page++) {
        if (!a->seen.page_used[page])
            continue;
        const uint16_t *k = keys(a, page, kv_head);
        if (!k)
            return LORA_ERR_ADDRESS;
        a->variant->scores(a->q, k, head_dim, block[page]);
    }
    for (uint32_t i = 0; i < a->seen.depth; i++)
        a->s[a->seen.committed + i] = block[a->seen.path[i] / TILE][a->seen.path[i] % TILE];
    float most = -INFINITY;
    for (uint32_t i = 0; i < a->seen.committed + a->seen.depth; i++) {
        a->s[i] = a->s[i] * scale;
        most = a->s[i] > most ? a->s[i] : most;
    }
    *largest = most;
    return LORA_OK;
}

/* V's row of each position of the tile that begins at `start`. */
static int find_values(const struct attend *a, uint32_t kv_head, uint32_t start, uint32_t count,
                       const uint16_t *v[TILE]) {
    uint32_t layer = a->command->kv_layer;
    const uint8_t *block = NULL;
    if (start < a->seen.committed) {
        block = kv_block_at(a->call, layer, a->seen.pages[start / TILE], kv_head, 1);
        if (!block)
            return LORA_ERR_ADDRESS;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (start + i < a->seen.committed) {
            v[i] = value(a, block, i, i);
            continue;
        }
        uint32_t slot = a->seen.path[start + i - a->seen.committed];
        const uint8_t *scratch = kv_block_at(a->call, layer, slot / TILE, kv_head, 1);
        if (!scratch)
            return LORA_ERR_ADDRESS;
        v[i] = value(a, scratch, slot % TILE, i);
    }
    return LORA_OK;
}

/* a->q holds one head's query; a->sum becomes sum(e*v)/sum(e). */
static int attend_head(struct attend *a, uint32_t kv_head) {
    uint32_t head_dim = a->command->head_dim, positions = a->seen.committed + a->seen.depth;
    float largest, sum_e = 0.0f;
    int status = score_head(a, kv_head, &largest);
    if (status != LORA_OK)
        return status;
    a->variant->exponentials(a->s, positions, largest, a->e);
    for (uint32_t d = 0; d < head_dim; d++)
        a->sum[d] = 0.0f;
    for (uint32_t start = 0; start < positions; start += TILE) {
        uint32_t count = positions - start < TILE ? positions - start : TILE;
        const uint16_t *v[TILE];
        status = find_values(a, kv_head, start, count, v);
        if (status != LORA_OK)
            return status;
        float tile_e = 0.0f;
        for (uint32_t i = 0; i < count; i++)
            tile_e = tile_e + a->e[start + i];
        sum_e = sum_e + tile_e;
        a->variant->weigh(a->e + start, v, count, head_dim, a->sum);
    }
    for (uint32_t d = 0; d < head_dim; d++)
        a->sum[d] = a->sum[d] / sum_e;
    return LORA_OK;
}

static int attend_heads(struct attend *a, struct lora_job *job, uint32_t row, uint32_t first,
                        uint32_t end) {
    const struct lora_attention *c = a->command;
    const uint16_t *q = half_row(job->attention.q, row);
    uint16_t *y = half_row(job->attention.y, row);
    for (uint32_t head = first; head < end; head++) {
        uint32_t place = head * c->head_dim;
        uint32_t global = (c->q_first + head) / c->group;
        if (global < c->kv_first || global - c->kv_first >= c->kv_heads)
            return LORA_ERR_SIZE;
        a->variant->halves_to_floats(q + place, c->head_dim, a->q);
        int status = attend_head(a, global - c->kv_first);
        if (status != LORA_OK)
            return status;
        job_count_nonfinite(job, row, a->variant->floats_to_halves(a->sum, c->head_dim, y + place));
    }
    return LORA_OK;
}

static uint32_t cuts(const struct lora_job *job) {
    uint32_t heads = job->attention.command->q_heads;
    return (heads + job->attention.heads - 1) / job->attention.heads;
}

/* Scores, weights, query and sums of a thread, and 32 positions widened to FP16. */
static uint64_t thread_floats(const struct lora_job *job) {
    uint64_t head_dim = job->attention.command->head_dim;
    uint64_t wide = job->call->list->kv_type == LORA_KV_FP16 ? 0 : TILE * head_dim / 2;
    return 2 * job->attention.positions + 2 * head_dim + wide;
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct attention_job *t = &job->attention;
    uint64_t size = thread_floats(job);
    struct attend a = {.call = job->call, .command = t->command, .variant = job->variant};
    a.s = t->scratch + size * thread;
    a.e = a.s + t->positions;
    a.q = a.e + t->positions;
    a.sum = a.q + t->command->head_dim;
    if (job->call->list->kv_type != LORA_KV_FP16)
        a.wide = (uint16_t *)(void *)(a.sum + t->command->head_dim);
    uint32_t row = item / cuts(job), first = item % cuts(job) * t->heads;
    uint32_t left = t->command->q_heads - first;
    int status = lora_visible_find(job->call, call_row(job->call, row), &a.seen);
    if (status == LORA_OK)
        status = attend_heads(&a, job, row, first, first + (left < t->heads ? left : t->heads));
    return status;
}

static void cut(struct lora_job *job) {
    struct attention_job *t = &job->attention;
    uint32_t heads = t->command->q_heads;
    uint32_t pieces = job->rows < ITEMS_WANTED ? ITEMS_WANTED / job->rows : 1;
    t->heads = heads > pieces ? (heads + pieces - 1) / pieces : 1;
    job->items = heads ? job->rows * cuts(job) : 0;
    uint64_t seen = t->positions - LORA_MAX_SCRATCH + TILE; /* about */
    job->work = 2 * job->rows * seen * heads * t->command->head_dim / PRODUCTS_PER_NS;
}

int lora_attention_begin(struct lora_job *job) {
    struct attention_job *t = &job->attention;
    const struct lora_attention *c =
        (const struct lora_attention *)(const void *)job->call->command;
    const struct lora_list *list = job->call->list;
    t->command = c;
    if (c->group == 0 || c->head_dim != list->head_dim || c->head_dim == 0 ||
        list->kv_bank_count == 0 || list->max_tiles > 0x10000 || !kv_type_right(list))
        return LORA_ERR_SIZE;
    uint64_t width = 2ull * c->q_heads * c->head_dim;
    t->q = call_operand(job->call, LORA_BANK_ONCHIP, c->q_offset, c->q_stride, width, 2);
    t->y = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride, width, 2);
    if (!t->q.base || !t->y.base)
        return LORA_ERR_ADDRESS;
    t->positions = ((uint64_t)lora_visible_most(job->call) + TILE - 1) / TILE * TILE + LORA_MAX_SCRATCH;
    t->scratch = lora_job_memory(job, thread_floats(job) * job->threads * sizeof(float));
    if (!t->scratch)
        return LORA_ERR_MEMORY;
    cut(job);
    job->run = run;
    return LORA_OK;
}

/* Attention on INT8 q, K and V with static scales: q*k and e*v are exact INT32 sums.
 * docs/numbers.md, 6.6. */
#include <math.h>

#include "attention_bias.h"
#include "attention_cuts.h"
#include "isa/half.h"
#include "isa/integer.h"
#include "job.h"
#include "visible.h"

#define TILE LORA_TILE_POSITIONS
#define MULTIPLICATIONS_PER_NS 40

struct attend {
    const struct lora_unit_call *call;
    const struct lora_attention *command;
    const struct lora_variant *variant;
    const struct lora_integer *integer;
    struct visible seen;
    float *s, *y;  /* [positions], [head_dim] */
    int32_t *sums; /* [head_dim] */
    uint8_t *e;    /* [positions] */
};

static const int8_t *block_at(const struct attend *a, uint32_t page, uint32_t head, uint32_t v) {
    return (const int8_t *)kv_block_at(a->call, a->command->kv_layer, page, head, v);
}

static uint32_t positions(const struct attend *a) { return a->seen.committed + a->seen.depth; }

static uint32_t first_position(const struct attend *a) {
    return attention_first(a->command, positions(a));
}

/* s[position] = FP32(q.k)*scale from the first position on. */
static int score(struct attend *a, const int8_t *q, uint32_t head) {
    float scale = float_of_bits(a->command->scale);
    uint32_t head_dim = a->command->head_dim, committed = a->seen.committed;
    int32_t sums[SCRATCH_PAGES][TILE];
    for (uint32_t start = first_position(a) / TILE * TILE; start < committed; start += TILE) {
        const int8_t *k = block_at(a, a->seen.pages[start / TILE], head, 0);
        if (!k) return LORA_ERR_ADDRESS;
        a->integer->scores(q, k, head_dim, sums[0]);
        for (uint32_t i = 0; i < TILE; i++) /* lanes past the end: replaced */
            a->s[start + i] = (float)sums[0][i] * scale;
    }
    for (uint32_t page = 0; page < SCRATCH_PAGES; page++) {
        const int8_t *k = a->seen.page_used[page] ? block_at(a, page, head, 0) : NULL;
        if (a->seen.page_used[page] && !k) return LORA_ERR_ADDRESS;
        if (k) a->integer->scores(q, k, head_dim, sums[page]);
    }
    for (uint32_t i = 0; i < a->seen.depth; i++)
        a->s[committed + i] = (float)sums[a->seen.path[i] / TILE][a->seen.path[i] % TILE] * scale;
    return LORA_OK;
}

/* The maximum score. NaN where a score is NaN or the maximum is not finite: then the weights are
 * NaN and with them the result. */
static float max_score(const struct attend *a) {
    float max = -INFINITY;
    int absent = 0;
    for (uint32_t i = first_position(a); i < positions(a); i++) {
        absent |= a->s[i] != a->s[i];
        max = a->s[i] > max ? a->s[i] : max;
    }
    return absent || isinf(max) ? NAN : max;
}

/* V's row of each position of the tile that begins at `start`. */
static int find_values(const struct attend *a, uint32_t head, uint32_t start, uint32_t count,
                       const int8_t *v[TILE]) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = start + i - a->seen.committed, page, lane;
        if (start + i < a->seen.committed) {
            page = a->seen.pages[start / TILE];
            lane = i;
        } else {
            page = a->seen.path[index] / TILE;
            lane = a->seen.path[index] % TILE;
        }
        const int8_t *block = block_at(a, page, head, 1);
        if (!block) return LORA_ERR_ADDRESS;
        v[i] = block + (uint64_t)lane * a->command->head_dim;
    }
    return LORA_OK;
}

/* a->y = (FP32(sum e8*v8)/FP32(sum e8))*v_scale of one head. */
static int attend_head(struct attend *a, const struct lora_job *job, const int8_t *q,
                       uint32_t q_head, uint32_t head) {
    uint32_t head_dim = a->command->head_dim, count = positions(a), first = first_position(a);
    float v_scale = float_of_bits(a->command->v_scale);
    int status = score(a, q, head);
    if (status != LORA_OK) return status;
    (void)lora_scores_finish(job, q_head, first, count, a->s, 0.0f);
    float max = max_score(a);
    for (uint32_t d = 0; d < head_dim; d++) {
        a->y[d] = max;
        a->sums[d] = 0;
    }
    if (max != max) return LORA_OK;
    float sum = (float)a->integer->weights(a->s + first, count - first, max, a->e + first);
    for (uint32_t start = first / TILE * TILE; start < count; start += TILE) {
        uint32_t hidden = first > start ? first - start : 0;
        uint32_t tile = count - start < TILE ? count - start : TILE;
        const int8_t *v[TILE];
        status = find_values(a, head, start, tile, v);
        if (status != LORA_OK) return status;
        a->integer->weigh(a->e + start + hidden, v + hidden, tile - hidden, head_dim, a->sums);
    }
    for (uint32_t d = 0; d < head_dim; d++) a->y[d] = ((float)a->sums[d] / sum) * v_scale;
    return LORA_OK;
}

static int attend_heads(struct attend *a, struct lora_job *job, uint32_t row, uint32_t first,
                        uint32_t end) {
    const struct lora_attention *c = a->command;
    const int8_t *q = (const int8_t *)(job->attention.q.base + job->attention.q.stride * row);
    uint16_t *y = half_row(job->attention.y, row);
    for (uint32_t head = first; head < end; head++) {
        uint32_t offset = head * c->head_dim, global = (c->q_first + head) / c->group;
        if (global < c->kv_first || global - c->kv_first >= c->kv_heads) return LORA_ERR_SIZE;
        int status = attend_head(a, job, q + offset, head, global - c->kv_first);
        if (status != LORA_OK) return status;
        uint32_t bad = a->variant->floats_to_halves(a->y, c->head_dim, y + offset);
        job_count_nonfinite(job, row, bad);
    }
    return LORA_OK;
}

/* Of a thread; `positions` is a multiple of 32. */
static uint64_t thread_bytes(const struct attention_job *t) {
    return padded_lines(t->positions * (sizeof(float) + 1) + 8ull * t->command->head_dim);
}

static uint32_t cuts(const struct lora_job *job) {
    uint32_t heads = job->attention.command->q_heads;
    return (heads + job->attention.heads - 1) / job->attention.heads;
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct attention_job *t = &job->attention;
    struct attend a = {.call = job->call,
                       .command = t->command,
                       .variant = job->variant,
                       .integer = lora_integer_current()};
    a.s = (float *)(void *)((uint8_t *)t->scratch + thread_bytes(t) * thread);
    a.y = a.s + t->positions;
    a.sums = (int32_t *)(void *)(a.y + t->command->head_dim);
    a.e = (uint8_t *)(a.sums + t->command->head_dim);
    uint32_t row = item / cuts(job), first = item % cuts(job) * t->heads;
    uint32_t left = t->command->q_heads - first;
    int status = lora_visible_find(job->call, call_row(job->call, row), &a.seen);
    if (status == LORA_OK && positions(&a) > LORA_MAX_INT8_POSITIONS) status = LORA_ERR_SIZE;
    if (status == LORA_OK)
        status = attend_heads(&a, job, row, first, first + (left < t->heads ? left : t->heads));
    return status;
}

static void cut(struct lora_job *job) {
    struct attention_job *t = &job->attention;
    uint32_t heads = t->command->q_heads;
    uint64_t seen = attention_seen(t);
    job->work = 2 * job->rows * seen * heads * t->command->head_dim / MULTIPLICATIONS_PER_NS;
    uint32_t cuts_wanted = attention_cuts(job, job->rows);
    t->heads = heads > cuts_wanted ? (heads + cuts_wanted - 1) / cuts_wanted : 1;
    job->items = heads ? job->rows * cuts(job) : 0;
}

int lora_attention_int8_begin(struct lora_job *job) {
    struct attention_job *t = &job->attention;
    const struct lora_attention *c =
        (const struct lora_attention *)(const void *)job->call->command;
    const struct lora_list *list = job->call->list;
    t->command = c;
    if (c->group == 0 || c->head_dim != list->head_dim || c->head_dim == 0 ||
        list->kv_bank_count == 0 || list->max_tiles > 0x10000 || !kv_type_right(list))
        return LORA_ERR_SIZE;
    uint64_t width = (uint64_t)c->q_heads * c->head_dim;
    t->q = call_operand(job->call, LORA_BANK_ONCHIP, c->q_offset, c->q_stride, width, 1);
    t->y = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride, 2 * width, 2);
    if (!t->q.base || !t->y.base) return LORA_ERR_ADDRESS;
    uint64_t committed = lora_visible_max(job->call);
    t->positions = (committed + TILE - 1) / TILE * TILE + LORA_MAX_SCRATCH;
    int status = lora_slopes_find(job->call, &t->slopes);
    if (status != LORA_OK) return status;
    t->scratch = lora_job_memory(job, thread_bytes(t) * job->threads);
    if (!t->scratch) return LORA_ERR_MEMORY;
    cut(job);
    job->run = run;
    return LORA_OK;
}

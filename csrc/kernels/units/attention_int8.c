/* Attention on INT8 q, K and V with static scales: q*k and e*v are exact INT32 sums.
 * docs/numbers.md, 6.6. */
#include <math.h>

#include "attention_bias.h"
#include "attention_cuts.h"
#include "attention_groups.h"
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
    uint32_t row;    /* of the call */
    const int8_t *q; /* of the head at hand */
    float *s, *y;    /* [positions], [head_dim] */
    int32_t *sums;   /* [head_dim] */
    uint8_t *e;      /* [positions] */
    float max, sum;  /* of the scores; of the weights */
};

/* Rows that share their tiles before `parting`, each of which is read for all of them. */
struct group {
    struct lora_job *job;
    struct attend *rows;
    uint32_t count, from, parting;
};

static const int8_t *block_at(const struct attend *a, uint32_t page, uint32_t head, uint32_t v) {
    return (const int8_t *)kv_block_at(a->call, a->command->kv_layer, page, head, v);
}

static uint32_t positions(const struct attend *a) { return a->seen.committed + a->seen.depth; }

static uint32_t first_position(const struct attend *a) {
    return attention_first(a->command, positions(a));
}

/* s[position] = FP32(q.k)*scale of a committed tile that the row sees. */
static void score_tile(struct attend *a, const int8_t *k, uint32_t start) {
    float scale = float_of_bits(a->command->scale);
    int32_t sums[TILE];
    a->integer->scores(a->q, k, a->command->head_dim, sums);
    for (uint32_t i = 0; i < TILE; i++) /* lanes past the end: replaced */
        a->s[start + i] = (float)sums[i] * scale;
}

/* The same of the tiles from `start` on and of uncommitted positions. */
static int score_rest(struct attend *a, uint32_t start, uint32_t head) {
    float scale = float_of_bits(a->command->scale);
    uint32_t first = first_position(a) / TILE * TILE;
    int32_t sums[SCRATCH_PAGES][TILE];
    for (start = start > first ? start : first; start < a->seen.committed; start += TILE) {
        const int8_t *k = block_at(a, a->seen.pages[start / TILE], head, 0);
        if (!k) return LORA_ERR_ADDRESS;
        score_tile(a, k, start);
    }
    for (uint32_t page = 0; page < SCRATCH_PAGES; page++) {
        const int8_t *k = a->seen.page_used[page] ? block_at(a, page, head, 0) : NULL;
        if (a->seen.page_used[page] && !k) return LORA_ERR_ADDRESS;
        if (k) a->integer->scores(a->q, k, a->command->head_dim, sums[page]);
    }
    for (uint32_t i = 0; i < a->seen.depth; i++)
        a->s[a->seen.committed + i] = (float)sums[a->seen.path[i] / TILE][a->seen.path[i] % TILE] *
                                      scale;
    return LORA_OK;
}

static int score(const struct group *g, uint32_t head) {
    int status = LORA_OK;
    for (uint32_t start = g->from; start < g->parting; start += TILE) {
        const int8_t *k = block_at(g->rows, g->rows->seen.pages[start / TILE], head, 0);
        if (!k) return LORA_ERR_ADDRESS;
        for (uint32_t i = 0; i < g->count; i++)
            if (first_position(&g->rows[i]) < start + TILE) score_tile(&g->rows[i], k, start);
    }
    for (uint32_t i = 0; i < g->count && status == LORA_OK; i++)
        status = score_rest(&g->rows[i], g->parting, head);
    return status;
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

/* Weights and their sum; sums of values begin at 0. */
static void weights(struct attend *a, const struct lora_job *job, uint32_t q_head) {
    uint32_t first = first_position(a), count = positions(a);
    (void)lora_scores_finish(job, q_head, first, count, a->s, 0.0f);
    a->max = max_score(a);
    for (uint32_t d = 0; d < a->command->head_dim; d++) a->sums[d] = 0;
    if (a->max == a->max)
        a->sum = (float)a->integer->weights(a->s + first, count - first, a->max, a->e + first);
}

/* sums += sum of e*v over what the row sees of `count` positions from `start` on. */
static void weigh_tile(struct attend *a, const int8_t *const v[TILE], uint32_t start,
                       uint32_t count) {
    uint32_t first = first_position(a), hidden = first > start ? first - start : 0;
    if (hidden < count && a->max == a->max)
        a->integer->weigh(a->e + start + hidden, v + hidden, count - hidden, a->command->head_dim,
                          a->sums);
}

static int weigh_rest(struct attend *a, uint32_t start, uint32_t head) {
    uint32_t first = first_position(a) / TILE * TILE, end = positions(a);
    for (start = start > first ? start : first; start < end && a->max == a->max; start += TILE) {
        uint32_t count = end - start < TILE ? end - start : TILE;
        const int8_t *v[TILE];
        int status = find_values(a, head, start, count, v);
        if (status != LORA_OK) return status;
        weigh_tile(a, v, start, count);
    }
    return LORA_OK;
}

static int weigh(const struct group *g, uint32_t head) {
    int status = LORA_OK;
    for (uint32_t start = g->from; start < g->parting && status == LORA_OK; start += TILE) {
        const int8_t *v[TILE];
        status = find_values(g->rows, head, start, TILE, v);
        for (uint32_t i = 0; i < g->count && status == LORA_OK; i++)
            weigh_tile(&g->rows[i], v, start, TILE);
    }
    for (uint32_t i = 0; i < g->count && status == LORA_OK; i++)
        status = weigh_rest(&g->rows[i], g->parting, head);
    return status;
}

/* y = FP16((FP32(sum e8*v8)/FP32(sum e8))*v_scale); the NaN of a maximum that is not finite. */
static void store(struct lora_job *job, struct attend *a, uint32_t offset) {
    const struct lora_attention *c = a->command;
    float v_scale = float_of_bits(c->v_scale);
    for (uint32_t d = 0; d < c->head_dim; d++)
        a->y[d] = a->max == a->max ? ((float)a->sums[d] / a->sum) * v_scale : a->max;
    uint16_t *y = half_row(job->attention.y, a->row) + offset;
    job_count_nonfinite(job, a->row, a->variant->floats_to_halves(a->y, c->head_dim, y));
}

/* One query head of the rows of a group. */
static int attend_head(const struct group *g, uint32_t head) {
    const struct attention_job *t = &g->job->attention;
    const struct lora_attention *c = t->command;
    uint32_t offset = head * c->head_dim, global = (c->q_first + head) / c->group;
    if (global < c->kv_first || global - c->kv_first >= c->kv_heads) return LORA_ERR_SIZE;
    uint32_t kv_head = global - c->kv_first;
    for (uint32_t i = 0; i < g->count; i++)
        g->rows[i].q = (const int8_t *)(t->q.base + t->q.stride * g->rows[i].row) + offset;
    int status = score(g, kv_head);
    if (status != LORA_OK) return status;
    for (uint32_t i = 0; i < g->count; i++) weights(&g->rows[i], g->job, head);
    status = weigh(g, kv_head);
    for (uint32_t i = 0; i < g->count && status == LORA_OK; i++) store(g->job, &g->rows[i], offset);
    return status;
}

/* Where the rows see the same tiles. */
static void compare_rows(struct group *g) {
    uint32_t first = first_position(g->rows), common = g->count > 1 ? UINT32_MAX : 0;
    for (uint32_t i = 1; i < g->count; i++) {
        uint32_t own = first_position(&g->rows[i]);
        first = own < first ? own : first;
    }
    g->from = first / TILE * TILE;
    for (uint32_t i = 1; i < g->count; i++) {
        uint32_t tile = lora_visible_common(&g->rows[0].seen, &g->rows[i].seen, first / TILE);
        common = tile < common ? tile : common;
    }
    g->parting = common * TILE;
}

/* Of a row; `positions` is a multiple of 32. */
static uint64_t row_bytes(const struct attention_job *t) {
    return padded_lines(t->positions * (sizeof(float) + 1) + 8ull * t->command->head_dim);
}

static uint32_t cuts(const struct lora_job *job) {
    uint32_t heads = job->attention.command->q_heads;
    return (heads + job->attention.heads - 1) / job->attention.heads;
}

static int open_row(struct lora_job *job, uint32_t row, uint8_t *memory, struct attend *a) {
    const struct attention_job *t = &job->attention;
    a->call = job->call;
    a->command = t->command;
    a->variant = job->variant;
    a->integer = lora_integer_current();
    a->row = row;
    a->s = (float *)(void *)memory;
    a->y = a->s + t->positions;
    a->sums = (int32_t *)(void *)(a->y + t->command->head_dim);
    a->e = (uint8_t *)(a->sums + t->command->head_dim);
    int status = lora_visible_find(job->call, call_row(job->call, row), &a->seen);
    if (status == LORA_OK && positions(a) > LORA_MAX_INT8_POSITIONS) status = LORA_ERR_SIZE;
    return status;
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct attention_job *t = &job->attention;
    uint8_t *memory = (uint8_t *)t->scratch + row_bytes(t) * t->widest * thread;
    struct attend rows[GROUP_ROWS];
    uint32_t group = item / cuts(job), head = item % cuts(job) * t->heads;
    uint32_t first = t->firsts[group], left = t->command->q_heads - head;
    struct group g = {.job = job, .rows = rows, .count = t->firsts[group + 1] - first};
    int status = g.count ? LORA_OK : LORA_ERR_SIZE;
    for (uint32_t i = 0; i < g.count && status == LORA_OK; i++)
        status = open_row(job, t->order[first + i], memory + row_bytes(t) * i, &rows[i]);
    if (status == LORA_OK) compare_rows(&g);
    for (uint32_t end = head + (left < t->heads ? left : t->heads); head < end && status == LORA_OK;
         head++)
        status = attend_head(&g, head);
    return status;
}

static void cut(struct lora_job *job, uint32_t groups) {
    struct attention_job *t = &job->attention;
    uint32_t heads = t->command->q_heads;
    uint64_t seen = attention_seen(t);
    job->work = 2 * job->rows * seen * heads * t->command->head_dim / MULTIPLICATIONS_PER_NS;
    uint32_t cuts_wanted = attention_cuts(job, groups);
    t->heads = heads > cuts_wanted ? (heads + cuts_wanted - 1) / cuts_wanted : 1;
    job->items = heads ? groups * cuts(job) : 0;
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
    uint32_t groups = lora_attention_groups(job);
    t->scratch = lora_job_memory(job, row_bytes(t) * t->widest * job->threads);
    if (!t->scratch) return LORA_ERR_MEMORY;
    cut(job, groups);
    job->run = run;
    return LORA_OK;
}

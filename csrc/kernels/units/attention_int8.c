/* Attention on INT8 q, K and V with static scales: q*k and e*v are exact INT32 sums.
 * docs/numbers.md, 6.6. */
#include <math.h>
#include <string.h>

#include "attention_cuts.h"
#include "attention_int8.h"
#include "isa/half.h"

#define MULTIPLICATIONS_PER_NS 80
#define MULTIPLICATIONS_PER_NS_ALONE 10 /* of a single row, which waits for memory */

/* No score can be NaN or infinite: |q.k| is below 2^31. */
static bool always_finite(const struct lora_attention *c) {
    return c->slope_kind == LORA_SLOPE_NONE && c->cap == 0 &&
           fabsf(float_of_bits(c->scale)) < 0x1p+90f;
}

/* The maximum score. NaN where a score is NaN or the maximum is not finite: then the weights are
 * NaN and with them the result. */
static float max_score(const struct int8_query *query, uint32_t first, uint32_t end) {
    float max = -INFINITY;
    int absent = 0;
    for (uint32_t i = first; i < end; i++) {
        absent |= query->s[i] != query->s[i];
        max = query->s[i] > max ? query->s[i] : max;
    }
    return absent || isinf(max) ? NAN : max;
}

/* Weights and their sum; sums of values begin at 0. A row whose maximum is NaN has none. */
static void weights(const struct int8_group *g, struct int8_query *query, uint32_t head) {
    const struct int8_row *a = query->a;
    uint32_t first = row_first(a), end = row_positions(a);
    uint32_t before = g->from < first ? g->from : first / TILE * TILE;
    uint32_t last = g->longest ? row_positions(g->longest) : end;
    if (always_finite(a->command))
        query->max = g->job->variant->scale(query->s + first, end - first, 1.0f);
    else {
        (void)lora_scores_finish(g->job, head, first, end, query->s, 0.0f);
        query->max = max_score(query, first, end);
    }
    memset(query->sums, 0, a->command->head_dim * sizeof(int32_t));
    memset(query->e + before, 0, (last + TILE - 1) / TILE * TILE - before);
    if (query->max == query->max)
        query->sum = (float)g->integer->weights(query->s + first, end - first, query->max,
                                                query->e + first) +
                     127.0f * lora_sink_weight(g->job, head, query->max);
}

/* y = FP16((FP32(sum e8*v8)/FP32(sum e8))*v_scale); the NaN of a maximum that is not finite. */
static void store(const struct int8_group *g, const struct int8_query *query, uint32_t offset) {
    const struct lora_attention *c = query->a->command;
    float v_scale = float_of_bits(c->v_scale);
    const int32_t *sums = query->sums;
    const float sum = query->sum, absent = query->max;
    float *restrict to = query->y;
    if (absent == absent)
        for (uint32_t d = 0; d < c->head_dim; d++) to[d] = ((float)sums[d] / sum) * v_scale;
    else
        for (uint32_t d = 0; d < c->head_dim; d++) to[d] = absent;
    uint16_t *y = half_row(g->job->attention.y, query->a->row) + offset;
    job_count_nonfinite(g->job, query->a->row,
                        g->job->variant->floats_to_halves(query->y, c->head_dim, y));
}

/* Of a query; `positions` is a multiple of 32. */
static uint64_t row_bytes(const struct attention_job *t) {
    return padded_lines(t->positions * (sizeof(float) + 1) + 8ull * t->command->head_dim);
}

/* The queries of `heads` heads from `head` on, in `memory`. */
static void open_queries(struct int8_group *g, uint32_t head, uint32_t heads, uint8_t *memory) {
    const struct attention_job *t = &g->job->attention;
    uint32_t head_dim = t->command->head_dim;
    g->query_count = heads * g->count;
    for (uint32_t n = 0; n < g->query_count; n++, memory += row_bytes(t)) {
        struct int8_query *query = &g->queries[n];
        query->a = &g->rows[n % g->count];
        query->q = (const int8_t *)(t->q.base + t->q.stride * query->a->row) +
                   (uint64_t)(head + n / g->count) * head_dim;
        int32_t total = 0;
        for (uint32_t d = 0; d < head_dim; d++) total += query->q[d];
        query->total = total;
        query->s = (float *)(void *)memory;
        query->y = query->s + t->positions;
        query->sums = (int32_t *)(void *)(query->y + head_dim);
        query->e = (uint8_t *)(query->sums + head_dim);
    }
}

/* Query heads of one KV head, of the rows of a group. */
static int attend_heads(struct int8_group *g, struct head_range heads, uint8_t *memory) {
    uint32_t head = heads.first;
    g->kv_head = heads.kv_head;
    open_queries(g, head, heads.count, memory);
    int status = lora_int8_score(g);
    if (status != LORA_OK) return status;
    for (uint32_t n = 0; n < g->query_count; n++) weights(g, &g->queries[n], head + n / g->count);
    status = lora_int8_weigh(g);
    for (uint32_t n = 0; n < g->query_count && status == LORA_OK; n++)
        store(g, &g->queries[n], (head + n / g->count) * g->job->attention.command->head_dim);
    return status;
}

/* Where the rows see the same tiles. */
static void compare_rows(struct int8_group *g) {
    uint32_t first = row_first(g->rows), common = g->count > 1 ? UINT32_MAX : 0;
    for (uint32_t i = 1; i < g->count; i++) {
        uint32_t own = row_first(&g->rows[i]);
        first = own < first ? own : first;
    }
    g->from = first / TILE * TILE;
    for (uint32_t i = 1; i < g->count; i++) {
        uint32_t tile = lora_visible_common(&g->rows[0].seen, &g->rows[i].seen, first / TILE);
        common = tile < common ? tile : common;
    }
    g->parting = common * TILE;
}

/* As the rows of a prompt are. */
static void find_longest(struct int8_group *g) {
    const struct int8_row *longest = g->rows;
    for (uint32_t i = 1; i < g->count; i++)
        if (g->rows[i].seen.depth > longest->seen.depth) longest = &g->rows[i];
    g->longest = longest;
    for (uint32_t i = 0; i < g->count; i++)
        if (!lora_visible_begins(&g->rows[i].seen, &longest->seen)) g->longest = NULL;
}

static int open_row(struct lora_job *job, uint32_t row, struct int8_row *a) {
    a->call = job->call;
    a->command = job->attention.command;
    a->row = row;
    int status = lora_visible_find(job->call, call_row(job->call, row), &a->seen);
    a->straight = status == LORA_OK && lora_visible_straight(&a->seen);
    if (status == LORA_OK && row_positions(a) > LORA_MAX_INT8_POSITIONS) status = LORA_ERR_SIZE;
    return status;
}

static uint64_t thread_bytes(const struct attention_job *t) {
    return row_bytes(t) * attention_queries(t) +
           padded_lines((uint64_t)TILE * t->command->head_dim);
}

static uint32_t kv_head_of(const struct lora_attention *c, uint32_t head) {
    return (c->q_first + head) / c->group - c->kv_first;
}

/* Of query heads head..end-1. */
static void fetch_first(struct int8_group *g, uint32_t head, uint32_t end) {
    const struct lora_attention *c = g->job->attention.command;
    g->kv_head = kv_head_of(c, head);
    g->kv_end = kv_head_of(c, end - 1) + 1;
    if (g->kv_end > c->kv_heads) g->kv_end = c->kv_heads;
    lora_int8_fetch_first(g);
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct attention_job *t = &job->attention;
    uint8_t *memory = (uint8_t *)t->scratch + thread_bytes(t) * thread;
    struct int8_row rows[GROUP_ROWS];
    struct int8_query queries[GROUP_ROWS];
    uint32_t group = item / attention_items(job), head = item % attention_items(job) * t->heads;
    uint32_t first = t->firsts[group], left = t->command->q_heads - head;
    struct int8_group g = {.job = job,
                           .integer = lora_integer_current(),
                           .rows = rows,
                           .queries = queries,
                           .count = t->firsts[group + 1] - first,
                           .tail = (int8_t *)memory};
    int status = g.count ? LORA_OK : LORA_ERR_SIZE;
    memory += padded_lines((uint64_t)TILE * t->command->head_dim);
    for (uint32_t i = 0; i < g.count && status == LORA_OK; i++)
        status = open_row(job, t->order[first + i], &rows[i]);
    if (status == LORA_OK) {
        compare_rows(&g);
        find_longest(&g);
    }
    uint32_t end = head + (left < t->heads ? left : t->heads);
    if (status == LORA_OK) fetch_first(&g, head, end);
    for (struct head_range heads = {.first = head}; heads.first < end && status == LORA_OK;
         heads.first += heads.count) {
        status = attention_heads_together(t->command, end, g.count, &heads);
        if (status == LORA_OK) status = attend_heads(&g, heads, memory);
    }
    return status;
}

static void cut(struct lora_job *job, uint32_t groups) {
    struct attention_job *t = &job->attention;
    uint64_t seen = attention_seen(t);
    job->work = 2 * job->rows * seen * t->command->q_heads * t->command->head_dim /
                (job->rows == 1 ? MULTIPLICATIONS_PER_NS_ALONE : MULTIPLICATIONS_PER_NS);
    t->heads = attention_heads(job, groups);
    job->items = t->command->q_heads ? groups * attention_items(job) : 0;
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
    cut(job, groups);
    t->scratch = lora_job_memory(job, thread_bytes(t) * job->threads);
    if (!t->scratch) return LORA_ERR_MEMORY;
    job->run = run;
    return LORA_OK;
}

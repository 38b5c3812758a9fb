/* Attention over KV blocks: the maximum first, then the sums, tile by tile and chunk by chunk in
 * logical order.
 * docs/numbers.md, 3.8. */
#include "attend.h"
#include "attention_bias.h"
#include "attention_cuts.h"
#include "isa/half.h"

#define MIN_QUERIES 3 /* that are worth doing together */
#define MULTIPLICATIONS_PER_NS                                                                     \
    6 /* of a row on its own: a microsecond a head of 32 over 100 positions */

/* Working memory of a row on its own. */
struct single_row {
    float *q, *s, *e;   /* [head_dim], [positions], [positions] */
    float *sum, *total; /* [head_dim]: of the chunk at hand, of all chunks */
    uint16_t *halves;   /* [positions] */
    float sum_e, total_e;
};

/* s[position] of one query head from its first position on, and their maximum. */
static int score_head(const struct lora_job *job, const struct attend *a,
                      const struct single_row *w, uint32_t head, uint32_t kv_head, float *max) {
    uint32_t head_dim = a->command->head_dim, positions = attend_positions(a);
    uint32_t first = attention_first(a->command, positions);
    const struct visible *seen = &a->seen;
    float block[SCRATCH_PAGES][TILE];
    for (uint32_t start = first / TILE * TILE; start < seen->committed; start += TILE) {
        const uint16_t *k = attend_keys(a, seen->pages[start / TILE], kv_head);
        if (!k) return LORA_ERR_ADDRESS;
        a->variant->scores(w->q, k, head_dim, w->s + start); /* lanes past the end: replaced */
    }
    for (uint32_t page = 0; page < SCRATCH_PAGES; page++) {
        if (!seen->page_used[page]) continue;
        const uint16_t *k = attend_keys(a, page, kv_head);
        if (!k) return LORA_ERR_ADDRESS;
        a->variant->scores(w->q, k, head_dim, block[page]);
    }
    for (uint32_t i = 0; i < seen->depth; i++)
        w->s[seen->committed + i] = block[seen->path[i] / TILE][seen->path[i] % TILE];
    *max = a->variant->scale(w->s + first, positions - first, float_of_bits(a->command->scale));
    *max = lora_scores_finish(job, head, first, positions, w->s, *max);
    return LORA_OK;
}

/* What the chunk at hand has summed joins the chunks before it. */
static void close_chunk(struct single_row *w, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; d++) {
        w->total[d] = w->total[d] + w->sum[d];
        w->sum[d] = 0.0f;
    }
    w->total_e = w->total_e + w->sum_e;
    w->sum_e = 0.0f;
}

/* w->q holds one head's query; w->total becomes sum(e*v)/sum(e). */
static int attend_head(const struct lora_job *job, const struct attend *a, struct single_row *w,
                       uint32_t head, uint32_t kv_head) {
    uint32_t head_dim = a->command->head_dim, positions = attend_positions(a);
    uint32_t first = attention_first(a->command, positions);
    float max;
    int status = score_head(job, a, w, head, kv_head, &max);
    if (status != LORA_OK) return status;
    a->variant->exponentials(w->s + first, positions - first, max, w->halves + first);
    a->variant->halves_to_floats(w->halves + first, positions - first, w->e + first);
    for (uint32_t d = 0; d < head_dim; d++) w->sum[d] = w->total[d] = 0.0f;
    w->sum_e = w->total_e = 0.0f;
    for (uint32_t start = first / TILE * TILE; start < positions; start += TILE) {
        if (start % LORA_CHUNK_POSITIONS == 0) close_chunk(w, head_dim);
        uint32_t count = positions - start < TILE ? positions - start : TILE;
        uint32_t hidden = first > start ? first - start : 0;
        const uint16_t *v[TILE];
        status = lora_attend_values(a, kv_head, start, count, v);
        if (status != LORA_OK) return status;
        float tile_e = 0.0f;
        for (uint32_t i = hidden; i < count; i++) tile_e = tile_e + w->e[start + i];
        w->sum_e = w->sum_e + tile_e;
        a->variant->weigh(w->e + start + hidden, v + hidden, count - hidden, head_dim, w->sum);
    }
    close_chunk(w, head_dim);
    w->total_e = w->total_e + lora_sink_weight(job, head, max);
    for (uint32_t d = 0; d < head_dim; d++) w->total[d] = w->total[d] / w->total_e;
    return LORA_OK;
}

static int attend_single(struct lora_job *job, const struct attend *a, uint32_t row, uint32_t head,
                         uint32_t kv_head, float *memory) {
    const struct attention_job *t = &job->attention;
    uint32_t head_dim = t->command->head_dim, offset = head * head_dim;
    struct single_row w = {.s = memory, .e = memory + t->positions};
    w.q = w.e + t->positions;
    w.sum = w.q + head_dim;
    w.total = w.sum + head_dim;
    w.halves = (uint16_t *)(void *)(w.total + head_dim);
    job->variant->halves_to_floats(half_row(t->q, row) + offset, head_dim, w.q);
    int status = attend_head(job, a, &w, head, kv_head);
    if (status != LORA_OK) return status;
    uint16_t *y = half_row(t->y, row) + offset;
    job_count_nonfinite(job, row, job->variant->floats_to_halves(w.total, head_dim, y));
    return LORA_OK;
}

/* 32 positions widened to FP16. */
static uint64_t wide_floats(const struct lora_job *job) {
    uint32_t halves = TILE * job->attention.command->head_dim;
    return job->call->list->kv_type == LORA_KV_FP16 ? 0 : halves / 2;
}

static uint64_t floats_a_thread(const struct lora_job *job) {
    const struct attention_job *t = &job->attention;
    uint64_t single = 2 * t->positions + 3ull * t->command->head_dim + t->positions / 2;
    uint64_t together = t->together ? lora_attend_rows_floats(job) : 0;
    uint64_t max = single > together ? single : together;
    return wide_floats(job) + (max + 15) / 16 * 16;
}

/* `heads` query heads of one KV head, of the rows of a group. */
static int attend_group(struct lora_job *job, struct attend *rows, const uint8_t *order,
                        uint32_t count, struct head_range heads, float *memory) {
    if (job->attention.together && heads.count * count >= MIN_QUERIES)
        return lora_attend_rows(job, rows, order, count, heads, memory);
    int status = LORA_OK;
    for (uint32_t head = heads.first; head < heads.first + heads.count; head++)
        for (uint32_t i = 0; i < count && status == LORA_OK; i++)
            status = attend_single(job, &rows[i], order[i], head, heads.kv_head, memory);
    return status;
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct attention_job *t = &job->attention;
    float *memory = t->scratch + floats_a_thread(job) * thread;
    struct attend rows[GROUP_ROWS];
    uint32_t group = item / attention_items(job), head = item % attention_items(job) * t->heads;
    uint32_t count = (uint32_t)t->firsts[group + 1] - t->firsts[group];
    const uint8_t *order = t->order + t->firsts[group];
    uint32_t left = t->command->q_heads - head, end = head + (left < t->heads ? left : t->heads);
    int status = LORA_OK;
    uint64_t wide = wide_floats(job);
    for (uint32_t i = 0; i < count && status == LORA_OK; i++) {
        rows[i].call = job->call;
        rows[i].command = t->command;
        rows[i].variant = job->variant;
        rows[i].wide = wide ? (uint16_t *)(void *)memory : NULL;
        status = lora_visible_find(job->call, call_row(job->call, order[i]), &rows[i].seen);
    }
    for (struct head_range heads = {.first = head}; heads.first < end && status == LORA_OK;
         heads.first += heads.count) {
        status = attention_heads_together(t->command, end, count, &heads);
        if (status == LORA_OK) status = attend_group(job, rows, order, count, heads, memory + wide);
    }
    return status;
}

static void cut(struct lora_job *job, uint32_t groups) {
    struct attention_job *t = &job->attention;
    uint32_t heads = t->command->q_heads;
    uint64_t seen = attention_seen(t);
    job->work = 2 * job->rows * seen * heads * t->command->head_dim / MULTIPLICATIONS_PER_NS;
    t->heads = attention_heads(job, groups);
    t->together = attention_queries(t) >= MIN_QUERIES &&
                  t->command->head_dim <= LORA_ATTEND_HEAD_DIM;
    job->items = heads ? groups * attention_items(job) : 0;
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
    if (!t->q.base || !t->y.base) return LORA_ERR_ADDRESS;
    uint64_t max = lora_visible_max(job->call);
    t->positions = (max + TILE - 1) / TILE * TILE + LORA_MAX_SCRATCH;
    int status = lora_slopes_find(job->call, &t->slopes);
    if (status != LORA_OK) return status;
    uint32_t groups = lora_attention_groups(job);
    cut(job, groups);
    t->scratch = lora_job_memory(job, floats_a_thread(job) * job->threads * sizeof(float));
    if (!t->scratch) return LORA_ERR_MEMORY;
    job->run = run;
    return LORA_OK;
}

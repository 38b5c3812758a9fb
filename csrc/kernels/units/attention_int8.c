/* Attention on INT8 q, K and V with static scales: q*k and e*v are exact INT32 sums.
 * docs/numbers.md, 6.6. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "attention_bias.h"
#include "attention_cuts.h"
#include "attention_groups.h"
#include "isa/half.h"
#include "isa/integer.h"
#include "job.h"
#include "visible.h"

#define TILE LORA_TILE_POSITIONS
#define RUN_TILES                                                                                  \
    8 /* read in one call: what is summed stays in registers, V in the first cache                 \
       */
#define MULTIPLICATIONS_PER_NS 80
#define MULTIPLICATIONS_PER_NS_ALONE 10 /* of a single row, which waits for memory */

/* A row of the call. */
struct attend {
    const struct lora_unit_call *call;
    const struct lora_attention *command;
    struct visible seen;
    uint32_t row;
    bool straight; /* the path's slots follow one another */
};

/* One query head of a row. */
struct query {
    const struct attend *a;
    const int8_t *q;
    int32_t total;  /* of q */
    float *s, *y;   /* [positions], [head_dim] */
    int32_t *sums;  /* [head_dim] */
    uint8_t *e;     /* [positions], 0 where the row sees nothing of a tile */
    float max, sum; /* of the scores; of the weights */
};

/* Query heads of one KV head, of rows that share their tiles before `parting`: each is read once
 * for all of them. */
struct group {
    struct lora_job *job;
    const struct lora_integer *integer;
    struct attend *rows;
    struct query *queries; /* head after head, of each all rows */
    uint32_t count, query_count, from, parting, kv_head;
    const struct attend *longest; /* whose path all rows' begin; NULL: none */
    int8_t *tail;                 /* [TILE][head_dim] */
};

/* Queries that read the same whole tiles. */
struct readers {
    const struct attend *a;
    const struct query *of[GROUP_ROWS];
    uint32_t count;
};

static const int8_t *block_at(const struct attend *a, uint32_t page, uint32_t head, uint32_t v) {
    return (const int8_t *)kv_block_at(a->call, a->command->kv_layer, page, head, v);
}

static uint32_t positions(const struct attend *a) { return a->seen.committed + a->seen.depth; }

static uint32_t first_position(const struct attend *a) {
    return attention_first(a->command, positions(a));
}

/* Blocks of K (v = 0) or V of the tiles from `start` on; behind them those that follow, or the
 * last one again. */
static int find_blocks(const struct group *g, const struct attend *a, uint32_t start,
                       uint32_t tiles, uint32_t v, const int8_t *blocks[]) {
    for (uint32_t t = 0; t < tiles; t++) {
        blocks[t] = block_at(a, a->seen.pages[start / TILE + t], g->kv_head, v);
        if (!blocks[t]) return LORA_ERR_ADDRESS;
    }
    for (uint32_t t = tiles; t < tiles + INTEGER_AHEAD; t++) {
        uint32_t tile = start / TILE + t;
        blocks[t] = NULL;
        if (tile < a->seen.committed / TILE)
            blocks[t] = block_at(a, a->seen.pages[tile], g->kv_head, v);
        if (!blocks[t]) blocks[t] = blocks[t - 1];
    }
    return LORA_OK;
}

static void score_run(const struct group *g, const struct readers *r, uint32_t start,
                      const struct integer_tiles *k) {
    const int8_t *q[GROUP_ROWS];
    int32_t totals[GROUP_ROWS];
    float *s[GROUP_ROWS];
    for (uint32_t i = 0; i < r->count; i++) {
        q[i] = r->of[i]->q;
        totals[i] = r->of[i]->total;
        s[i] = r->of[i]->s + start;
    }
    g->integer->scores(k, q, totals, float_of_bits(r->a->command->scale), s);
}

static void weigh_run(const struct group *g, const struct readers *r, uint32_t start,
                      const struct integer_tiles *v) {
    const uint8_t *e[GROUP_ROWS];
    int32_t *sums[GROUP_ROWS];
    for (uint32_t i = 0; i < r->count; i++) {
        e[i] = r->of[i]->e + start;
        sums[i] = r->of[i]->sums;
    }
    g->integer->weigh(v, e, sums);
}

/* Scores (v = 0) or sums (v = 1) of committed tiles, start to end. Lanes past the row's last
 * position have scores that are replaced, and weights of 0. */
static int read_tiles(const struct group *g, const struct readers *r, uint32_t v, uint32_t start,
                      uint32_t end) {
    for (uint32_t tiles; start < end; start += tiles * TILE) {
        const int8_t *blocks[RUN_TILES + INTEGER_AHEAD];
        tiles = (end - start + TILE - 1) / TILE;
        tiles = tiles < RUN_TILES ? tiles : RUN_TILES;
        int status = find_blocks(g, r->a, start, tiles, v, blocks);
        if (status != LORA_OK) return status;
        struct integer_tiles run = {r->count, tiles, r->a->command->head_dim, blocks};
        if (v) weigh_run(g, r, start, &run);
        else score_run(g, r, start, &run);
    }
    return LORA_OK;
}

/* The queries of row i, or of all rows. */
static struct readers readers_of(const struct group *g, uint32_t i, bool all) {
    struct readers r = {.a = &g->rows[i], .count = 0};
    uint32_t first = all ? 0 : i, apart = all ? 1 : g->count;
    for (uint32_t n = first; n < g->query_count; n += apart) r.of[r.count++] = &g->queries[n];
    return r;
}

/* Tiles of the rows' window that not all of them see are read for all: scores before a row's first
 * position are not looked at, and weights there are 0. */
static int read_shared(const struct group *g, uint32_t v) {
    struct readers r = readers_of(g, 0, true);
    return read_tiles(g, &r, v, g->from, g->parting);
}

/* The tiles from `parting` on; whole ones, and of K also the last committed one. */
static int read_own(const struct group *g, uint32_t i, uint32_t v) {
    struct readers r = readers_of(g, i, false);
    uint32_t start = first_position(r.a) / TILE * TILE, end = r.a->seen.committed;
    start = start > g->parting ? start : g->parting;
    return read_tiles(g, &r, v, start, v ? end / TILE * TILE : end);
}

/* One block, and nothing to be read after it. */
static void fetch_nothing(const int8_t *blocks[1 + INTEGER_AHEAD]) {
    for (uint32_t i = 1; i <= INTEGER_AHEAD; i++) blocks[i] = blocks[0];
}

/* The queries of rows that see uncommitted positions in this scratch page. */
static struct readers readers_of_page(const struct group *g, uint32_t page) {
    struct readers r = {.a = g->rows, .count = 0};
    for (uint32_t n = 0; n < g->query_count; n++)
        if (g->queries[n].a->seen.page_used[page]) r.of[r.count++] = &g->queries[n];
    return r;
}

/* Of a scratch page: each score goes to its position on the row's path. */
static void place_scores(const struct query *query, uint32_t page, const float *scores) {
    const struct visible *seen = &query->a->seen;
    float *s = query->s + seen->committed;
    if (query->a->straight) {
        uint32_t slot = seen->path[0], begin = page * TILE, end = slot + seen->depth;
        uint32_t first = slot > begin ? slot : begin;
        end = end < begin + TILE ? end : begin + TILE;
        memcpy(s + (first - slot), scores + (first - begin), (end - first) * sizeof *s);
        return;
    }
    for (uint32_t d = 0; d < seen->depth; d++)
        if (seen->path[d] / TILE == page) s[d] = scores[seen->path[d] % TILE];
}

/* Scores of one scratch page. */
static int score_page(const struct group *g, uint32_t page) {
    const struct readers r = readers_of_page(g, page);
    const int8_t *blocks[1 + INTEGER_AHEAD], *q[GROUP_ROWS];
    int32_t totals[GROUP_ROWS];
    float scores[GROUP_ROWS][TILE], *s[GROUP_ROWS];
    if (r.count == 0) return LORA_OK;
    blocks[0] = block_at(r.a, page, g->kv_head, 0);
    if (!blocks[0]) return LORA_ERR_ADDRESS;
    fetch_nothing(blocks);
    for (uint32_t i = 0; i < r.count; i++) {
        q[i] = r.of[i]->q;
        totals[i] = r.of[i]->total;
        s[i] = scores[i];
    }
    struct integer_tiles k = {r.count, 1, r.a->command->head_dim, blocks};
    g->integer->scores(&k, q, totals, float_of_bits(r.a->command->scale), s);
    for (uint32_t i = 0; i < r.count; i++) place_scores(r.of[i], page, scores[i]);
    return LORA_OK;
}

static int score(const struct group *g) {
    int status = read_shared(g, 0);
    for (uint32_t i = 0; i < g->count && status == LORA_OK; i++) status = read_own(g, i, 0);
    for (uint32_t page = 0; page < SCRATCH_PAGES && status == LORA_OK; page++)
        status = score_page(g, page);
    return status;
}

/* No score can be NaN or infinite: |q.k| is below 2^31. */
static bool always_finite(const struct lora_attention *c) {
    return c->slope_kind == LORA_SLOPE_NONE && c->cap == 0 &&
           fabsf(float_of_bits(c->scale)) < 0x1p+90f;
}

/* The maximum score. NaN where a score is NaN or the maximum is not finite: then the weights are
 * NaN and with them the result. */
static float max_score(const struct query *query, uint32_t first, uint32_t end) {
    float max = -INFINITY;
    int absent = 0;
    for (uint32_t i = first; i < end; i++) {
        absent |= query->s[i] != query->s[i];
        max = query->s[i] > max ? query->s[i] : max;
    }
    return absent || isinf(max) ? NAN : max;
}

/* Weights and their sum; sums of values begin at 0. A row whose maximum is NaN has none. */
static void weights(const struct group *g, struct query *query, uint32_t head) {
    const struct attend *a = query->a;
    uint32_t first = first_position(a), end = positions(a);
    uint32_t before = g->from < first ? g->from : first / TILE * TILE;
    uint32_t last = g->longest ? positions(g->longest) : end;
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
                                                query->e + first);
}

/* V of the row's last tile: the positions of which are in several pages, often one after another in
 * a page. */
static int gather_tail(const struct group *g, const struct attend *a, uint32_t start) {
    uint32_t head_dim = a->command->head_dim, end = positions(a), known = UINT32_MAX;
    const int8_t *block = NULL;
    if (end > start + TILE) end = start + TILE;
    for (uint32_t i = start; i < end; i++) {
        bool committed = i < a->seen.committed;
        uint32_t slot = committed ? i % TILE : a->seen.path[i - a->seen.committed];
        uint32_t page = committed ? a->seen.pages[i / TILE] : slot / TILE;
        if (page != known) block = block_at(a, page, g->kv_head, 1);
        if (!block) return LORA_ERR_ADDRESS;
        known = page;
        memcpy(g->tail + (uint64_t)(i - start) * head_dim,
               block + (uint64_t)(slot % TILE) * head_dim, head_dim);
    }
    memset(g->tail + (uint64_t)(end - start) * head_dim, 0,
           (uint64_t)(start + TILE - end) * head_dim);
    return LORA_OK;
}

/* Of the tiles with uncommitted positions that the readers' row sees. */
static int weigh_path(const struct group *g, const struct readers *r) {
    uint32_t start = r->a->seen.committed / TILE * TILE, first = first_position(r->a) / TILE * TILE;
    const int8_t *blocks[1 + INTEGER_AHEAD] = {g->tail};
    fetch_nothing(blocks);
    struct integer_tiles v = {r->count, 1, r->a->command->head_dim, blocks};
    if (g->longest && g->from < first) first = g->from;
    for (start = start > first ? start : first; start < positions(r->a); start += TILE) {
        int status = gather_tail(g, r->a, start);
        if (status != LORA_OK) return status;
        weigh_run(g, r, start, &v);
    }
    return LORA_OK;
}

/* Rows one after another on one path read its tail once for all: what follows a row has a weight
 * of 0. */
static int weigh(const struct group *g) {
    int status = read_shared(g, 1);
    for (uint32_t i = 0; i < g->count && status == LORA_OK; i++) {
        struct readers r = readers_of(g, i, false);
        status = read_own(g, i, 1);
        if (status == LORA_OK && !g->longest) status = weigh_path(g, &r);
    }
    if (status != LORA_OK || !g->longest) return status;
    struct readers all = readers_of(g, 0, true);
    all.a = g->longest;
    return weigh_path(g, &all);
}

/* y = FP16((FP32(sum e8*v8)/FP32(sum e8))*v_scale); the NaN of a maximum that is not finite. */
static void store(const struct group *g, const struct query *query, uint32_t offset) {
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
static void open_queries(struct group *g, uint32_t head, uint32_t heads, uint8_t *memory) {
    const struct attention_job *t = &g->job->attention;
    uint32_t head_dim = t->command->head_dim;
    g->query_count = heads * g->count;
    for (uint32_t n = 0; n < g->query_count; n++, memory += row_bytes(t)) {
        struct query *query = &g->queries[n];
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
static int attend_heads(struct group *g, struct head_range heads, uint8_t *memory) {
    uint32_t head = heads.first;
    g->kv_head = heads.kv_head;
    open_queries(g, head, heads.count, memory);
    int status = score(g);
    if (status != LORA_OK) return status;
    for (uint32_t n = 0; n < g->query_count; n++) weights(g, &g->queries[n], head + n / g->count);
    status = weigh(g);
    for (uint32_t n = 0; n < g->query_count && status == LORA_OK; n++)
        store(g, &g->queries[n], (head + n / g->count) * g->job->attention.command->head_dim);
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

/* As the rows of a prompt are. */
static void find_longest(struct group *g) {
    const struct attend *longest = g->rows;
    for (uint32_t i = 1; i < g->count; i++)
        if (g->rows[i].seen.depth > longest->seen.depth) longest = &g->rows[i];
    g->longest = longest;
    for (uint32_t i = 0; i < g->count; i++)
        if (!lora_visible_begins(&g->rows[i].seen, &longest->seen)) g->longest = NULL;
}

static int open_row(struct lora_job *job, uint32_t row, struct attend *a) {
    a->call = job->call;
    a->command = job->attention.command;
    a->row = row;
    int status = lora_visible_find(job->call, call_row(job->call, row), &a->seen);
    a->straight = status == LORA_OK && lora_visible_straight(&a->seen);
    if (status == LORA_OK && positions(a) > LORA_MAX_INT8_POSITIONS) status = LORA_ERR_SIZE;
    return status;
}

static uint64_t thread_bytes(const struct attention_job *t) {
    return row_bytes(t) * attention_queries(t) +
           padded_lines((uint64_t)TILE * t->command->head_dim);
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct attention_job *t = &job->attention;
    uint8_t *memory = (uint8_t *)t->scratch + thread_bytes(t) * thread;
    struct attend rows[GROUP_ROWS];
    struct query queries[GROUP_ROWS];
    uint32_t group = item / attention_items(job), head = item % attention_items(job) * t->heads;
    uint32_t first = t->firsts[group], left = t->command->q_heads - head;
    struct group g = {.job = job,
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

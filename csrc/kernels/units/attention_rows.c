/* Attention of several queries: query heads of one KV head, of rows of one sequence or of sequences
 * that share pages. What they see in common is read and converted once, and multiplied as in a
 * matmul of many rows. Every sum is that of a query on its own.
 * docs/numbers.md, 3.8. */
#include "attend.h"
#include "attention_bias.h"
#include "attention_cuts.h"
#include "isa/half.h"
#include "isa/segments.h"

#define COLUMNS LORA_BLOCK_N /* columns of V at a time */
#define TILES_AHEAD 4
#define MAX_KEY_BLOCKS (LORA_ATTEND_HEAD_DIM / LORA_BLOCK_K)

struct group {
    struct lora_job *job;
    const struct lora_variant *variant;
    struct attend *rows;
    const struct attend *longest;
    const uint8_t *order; /* the rows' numbers in the call */
    uint32_t row_count;
    uint32_t count; /* queries: head after head, of each all rows */
    uint32_t head, kv_head, head_dim;
    uint32_t max, min;  /* positions of the longest and of the shortest row */
    uint32_t from, all; /* the first position that a row sees, that every row sees */
    uint32_t parting;   /* the first position that not all rows have on the same page */
    bool several;       /* sequences; from `parting` on each row goes on alone */
    bool chain;         /* each row's path begins the longest one's */
    uint64_t positions; /* room of a row */
    float *s;           /* [count][positions] */
    uint16_t *e;        /* [count][positions] */
    float *q;           /* panels of head_dim columns */
    float *tile_e;      /* panels of TILE columns */
    float *sum_e;       /* [count] */
    float *sums;        /* [PANEL_LEVELS][count][TILE] */
    float *result;      /* [2][parts][count][COLUMNS]: the chunk's tiles so far, the tile at hand */
    float *total_e;     /* [count]: of the chunks before */
    float *sink;        /* [count]: what joins it last */
    float *total;       /* [count][parts*COLUMNS]: the same */
    float *row;         /* [parts*COLUMNS] */
    float *single_q;    /* [head_dim] */
    uint16_t *values;   /* [TILE][parts*COLUMNS] */
};

static uint32_t parts(uint32_t head_dim) { return (head_dim + COLUMNS - 1) / COLUMNS; }

uint64_t lora_attend_rows_floats(const struct lora_job *job) {
    uint64_t rows = attention_queries(&job->attention);
    uint64_t head_dim = job->attention.command->head_dim;
    uint64_t width = (uint64_t)parts((uint32_t)head_dim) * COLUMNS;
    return rows * job->attention.positions * 3 / 2 +
           panel_floats((uint32_t)rows, (uint32_t)head_dim) + panel_floats((uint32_t)rows, TILE) +
           rows + PANEL_LEVELS * rows * TILE + 2 * rows * width + width + head_dim +
           TILE * width / 2 + 2 * rows + rows * width + 14 * 16;
}

static float *carve(float **memory, uint64_t floats) {
    float *found = *memory;
    *memory += (floats + 15) / 16 * 16;
    return found;
}

static void lay_out(struct group *g, float *memory) {
    uint64_t width = (uint64_t)parts(g->head_dim) * COLUMNS;
    g->positions = g->job->attention.positions;
    g->s = carve(&memory, g->count * g->positions);
    g->e = (uint16_t *)(void *)carve(&memory, g->count * g->positions / 2);
    g->q = carve(&memory, panel_floats(g->count, g->head_dim));
    g->tile_e = carve(&memory, panel_floats(g->count, TILE));
    g->sum_e = carve(&memory, g->count);
    g->sums = carve(&memory, (uint64_t)PANEL_LEVELS * g->count * TILE);
    g->result = carve(&memory, 2 * g->count * width);
    g->total_e = carve(&memory, g->count);
    g->sink = carve(&memory, g->count);
    g->total = carve(&memory, g->count * width);
    g->row = carve(&memory, width);
    g->single_q = carve(&memory, g->head_dim);
    g->values = (uint16_t *)(void *)carve(&memory, TILE * width / 2);
}

/* The row of query i, and its head. */
static struct attend *row_of(const struct group *g, uint32_t i) {
    return &g->rows[i % g->row_count];
}

static uint32_t head_of(const struct group *g, uint32_t i) { return g->head + i / g->row_count; }

/* Where query i begins, of q or y. */
static uint16_t *values_of(const struct group *g, struct rows rows, uint32_t i) {
    return half_row(rows, g->order[i % g->row_count]) + (uint64_t)head_of(g, i) * g->head_dim;
}

/* The first position that query i sees. */
static uint32_t first_of(const struct group *g, uint32_t i) {
    const struct attend *a = row_of(g, i);
    return attention_first(a->command, attend_positions(a));
}

static void compare_rows(struct group *g) {
    g->longest = &g->rows[0];
    g->min = attend_positions(&g->rows[0]);
    for (uint32_t i = 1; i < g->row_count; i++) {
        uint32_t positions = attend_positions(&g->rows[i]);
        if (positions > attend_positions(g->longest)) g->longest = &g->rows[i];
        g->min = positions < g->min ? positions : g->min;
    }
    g->max = attend_positions(g->longest);
    g->from = attention_first(g->longest->command, g->min) / TILE * TILE;
    g->all = attention_first(g->longest->command, g->max);
    g->parting = UINT32_MAX;
    g->several = false;
    for (uint32_t i = 1; i < g->row_count; i++) {
        uint32_t tile = lora_visible_common(&g->rows[0].seen, &g->rows[i].seen, g->from / TILE);
        g->parting = tile * TILE < g->parting ? tile * TILE : g->parting;
        g->several = g->several || g->rows[i].seen.pages != g->rows[0].seen.pages;
    }
    g->chain = !g->several;
    for (uint32_t i = 0; i < g->row_count; i++)
        for (uint32_t d = 0; d < g->rows[i].seen.depth; d++)
            g->chain = g->chain && g->rows[i].seen.path[d] == g->longest->seen.path[d];
}

/* The block of K (v = 0) or V (v = 1) that is read some tiles after the one at `start`: it comes
 * from memory meanwhile. NULL where there is none. */
static const uint16_t *block_ahead(const struct group *g, uint32_t start, uint32_t v) {
    const struct attend *a = g->longest;
    uint64_t tile = (uint64_t)start / TILE + TILES_AHEAD;
    if (tile * TILE >= a->seen.committed) return NULL;
    return (const uint16_t *)(const void *)kv_block_at(a->call, a->command->kv_layer,
                                                       a->seen.pages[tile], g->kv_head, v);
}

/* q.k of all queries and one K block; `ahead`, where there is one, is fetched meanwhile. */
static int score_block(const struct group *g, uint32_t page, const uint16_t *ahead) {
    const uint16_t *blocks[MAX_KEY_BLOCKS], *fetched[MAX_KEY_BLOCKS];
    uint32_t starts[LORA_SEGMENTS + 1], count = (g->head_dim + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
    _Alignas(LORA_LINE_BYTES) float work[LORA_BLOCK_K * LORA_BLOCK_N];
    const uint16_t *k = attend_keys(g->longest, page, g->kv_head);
    if (!k) return LORA_ERR_ADDRESS;
    for (uint32_t i = 0; i < count; i++) blocks[i] = k + (uint64_t)i * LORA_BLOCK_K * TILE;
    for (uint32_t i = 0; i < count; i++)
        fetched[i] = (ahead ? ahead : k) + (uint64_t)i * LORA_BLOCK_K * TILE;
    for (uint32_t s = 0; s <= LORA_SEGMENTS; s++) starts[s] = segment_start(g->head_dim, s);
    lora_panels_multiply(g->variant, g->q, g->count, starts, blocks, fetched, work, g->sums);
    return LORA_OK;
}

/* The committed positions that row i does not share. */
static int score_rest(const struct group *g, uint32_t i) {
    const struct attend *a = row_of(g, i);
    const uint16_t *q = values_of(g, g->job->attention.q, i);
    uint32_t start = first_of(g, i) / TILE * TILE;
    g->variant->halves_to_floats(q, g->head_dim, g->single_q);
    for (start = start > g->parting ? start : g->parting; start < a->seen.committed;
         start += TILE) {
        const uint16_t *k = attend_keys(a, a->seen.pages[start / TILE], g->kv_head);
        if (!k) return LORA_ERR_ADDRESS;
        g->variant->scores(g->single_q, k, g->head_dim, g->s + i * g->positions + start);
    }
    return LORA_OK;
}

static int score_committed(const struct group *g) {
    uint32_t common = g->several ? g->parting : g->longest->seen.committed;
    for (uint32_t start = g->from; start < common; start += TILE) {
        int status = score_block(g, g->longest->seen.pages[start / TILE], block_ahead(g, start, 0));
        if (status != LORA_OK) return status;
        for (uint32_t i = 0; i < g->count; i++) /* lanes past the end: replaced */
            memcpy(g->s + i * g->positions + start, g->sums + i * TILE, TILE * sizeof(float));
    }
    int status = LORA_OK;
    for (uint32_t i = 0; g->several && i < g->count && status == LORA_OK; i++)
        status = score_rest(g, i);
    return status;
}

/* Scores of a page's lanes, to the depths of a row's path; a prompt's rows lie side by side. */
static void take_scores(const struct attend *a, uint32_t page, const float *lanes, float *s) {
    const uint32_t depth = a->seen.depth;
    for (uint32_t d = 0, count; d < depth; d += count) {
        const uint32_t slot = a->seen.path[d], lane = slot % TILE;
        for (count = 1; d + count < depth && lane + count < TILE; count++)
            if (a->seen.path[d + count] != slot + count) break;
        if (slot / TILE == page) memcpy(s + d, lanes + lane, count * sizeof(float));
    }
}

/* Scores of a page of uncommitted rows, to each row that has some of them on its path. */
static int score_page(const struct group *g, uint32_t page) {
    bool used = false;
    for (uint32_t i = 0; i < g->row_count; i++) used = used || g->rows[i].seen.page_used[page];
    int status = used ? score_block(g, page, NULL) : LORA_OK;
    for (uint32_t i = 0; i < g->count && used && status == LORA_OK; i++) {
        const struct attend *a = row_of(g, i);
        take_scores(a, page, g->sums + i * TILE, g->s + i * g->positions + a->seen.committed);
    }
    return status;
}

static int score(const struct group *g) {
    float scale = float_of_bits(g->job->attention.command->scale);
    int status = score_committed(g);
    for (uint32_t page = 0; page < SCRATCH_PAGES && status == LORA_OK; page++)
        status = score_page(g, page);
    for (uint32_t i = 0; i < g->count && status == LORA_OK; i++) {
        uint32_t positions = attend_positions(row_of(g, i));
        float *s = g->s + i * g->positions;
        uint16_t *e = g->e + i * g->positions;
        uint32_t first = first_of(g, i);
        float max = g->variant->scale(s + first, positions - first, scale);
        max = lora_scores_finish(g->job, head_of(g, i), first, positions, s, max);
        g->sink[i] = lora_sink_weight(g->job, head_of(g, i), max);
        memset(e + g->from, 0, (first - g->from) * sizeof(uint16_t));
        g->variant->exponentials(s + first, positions - first, max, e + first);
        uint32_t end = (g->max + TILE - 1) / TILE * TILE;
        memset(e + positions, 0, (end - positions) * sizeof(uint16_t));
    }
    return status;
}

static bool all_finite(const uint16_t *values, uint64_t count) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < count; i++) bad |= (values[i] & 0x7c00) == 0x7c00;
    return !bad;
}

/* V of a tile as [count][width], not copied where it is stored so. *values NULL: rows see different
 * ones, or a row may not see a value that is not finite: it would show through a weight of 0. */
static int find_tile(const struct group *g, uint32_t start, uint32_t count,
                     const uint16_t **values) {
    uint32_t width = parts(g->head_dim) * COLUMNS;
    const uint16_t *v[TILE];
    bool common = start + count <= g->longest->seen.committed;
    *values = NULL;
    if (!common && !g->chain) return LORA_OK;
    int status = lora_attend_values(g->longest, g->kv_head, start, count, v);
    if (status != LORA_OK) return status;
    bool seen = start >= g->all;
    if (common && width == g->head_dim) {
        if (seen || all_finite(v[0], (uint64_t)count * width)) *values = v[0];
        return LORA_OK;
    }
    memset(g->values, 0, count * width * sizeof(uint16_t));
    for (uint32_t i = 0; i < count; i++)
        memcpy(g->values + i * width, v[i], g->head_dim * sizeof(uint16_t));
    if ((seen && start + count <= g->min) || all_finite(g->values, (uint64_t)count * width))
        *values = g->values;
    return LORA_OK;
}

/* sum_e and result += one tile of all rows. */
static void add_tile(const struct group *g, uint32_t start, uint32_t count,
                     const uint16_t *values) {
    uint32_t width = parts(g->head_dim) * COLUMNS;
    _Alignas(LORA_LINE_BYTES) float work[TILE * COLUMNS];
    struct rows e = {(uint8_t *)(g->e + start), g->positions * sizeof(uint16_t)};
    const struct panel_cut cut = panel_cut_of(g->count);
    lora_panels_fill(g->variant, e, g->count, TILE, g->tile_e);
    for (uint32_t panel = 0; panel < cut.count; panel++) {
        const float *weight = g->tile_e + panel * TILE * PANEL_ROWS;
        float total[PANEL_ROWS] = {0};
        for (uint32_t i = 0; i < count; i++, weight += PANEL_ROWS)
            for (uint32_t r = 0; r < PANEL_ROWS; r++) total[r] = total[r] + weight[r];
        uint32_t first = cut.first[panel], end = cut.first[panel + 1];
        for (uint32_t r = first; r < end; r++) g->sum_e[r] = g->sum_e[r] + total[r - first];
    }
    uint64_t level = (uint64_t)width * g->count;
    const uint16_t *ahead = block_ahead(g, start, 1);
    for (uint32_t part = 0; part < width / COLUMNS; part++) {
        struct panel_step step = {.halves = values + part * COLUMNS,
                                  .halves_step = width,
                                  .weights = work,
                                  .prefetch = (ahead ? ahead : values) + part * TILE * COLUMNS,
                                  .level = level,
                                  .steps = count,
                                  .joins = 1,
                                  .begins = true};
        lora_panels_add(g->variant, g->tile_e, TILE, &cut, step,
                        g->result + level + (uint64_t)part * g->count * COLUMNS);
    }
}

/* A row's result, between the parts of all rows and g->row. */
static void take_row(const struct group *g, uint32_t r) {
    for (uint32_t part = 0; part < parts(g->head_dim); part++)
        memcpy(g->row + part * COLUMNS, g->result + (part * g->count + r) * COLUMNS,
               COLUMNS * sizeof(float));
}

static void put_row(const struct group *g, uint32_t r) {
    for (uint32_t part = 0; part < parts(g->head_dim); part++)
        memcpy(g->result + (part * g->count + r) * COLUMNS, g->row + part * COLUMNS,
               COLUMNS * sizeof(float));
}

/* What row r's chunk has summed, in g->row and sum_e, joins the chunks before it. */
static void close_row(const struct group *g, uint32_t r) {
    uint32_t width = parts(g->head_dim) * COLUMNS;
    float *total = g->total + (uint64_t)r * width;
    for (uint32_t d = 0; d < width; d++) {
        total[d] = total[d] + g->row[d];
        g->row[d] = 0.0f;
    }
    g->total_e[r] = g->total_e[r] + g->sum_e[r];
    g->sum_e[r] = 0.0f;
}

static void close_chunk(const struct group *g) {
    for (uint32_t r = 0; r < g->count; r++) {
        take_row(g, r);
        close_row(g, r);
        put_row(g, r);
    }
}

/* sum_e and result += what row r sees of the tiles from `start` to `end`, of which it sees some:
 * not what the others see. */
static int add_row_tiles(const struct group *g, uint32_t r, uint32_t start, uint32_t end) {
    const struct attend *a = row_of(g, r);
    uint32_t positions = attend_positions(a), first = first_of(g, r);
    if (start < first / TILE * TILE) start = first / TILE * TILE;
    if (positions < end) end = positions;
    take_row(g, r);
    for (; start < end; start += TILE) {
        if (start % LORA_CHUNK_POSITIONS == 0) close_row(g, r);
        const uint16_t *v[TILE];
        float e[TILE], total = 0.0f;
        uint32_t hidden = first > start ? first - start : 0;
        uint32_t count = positions - start < TILE ? positions - start : TILE;
        int status = lora_attend_values(a, g->kv_head, start, count, v);
        if (status != LORA_OK) return status;
        g->variant->halves_to_floats(g->e + r * g->positions + start, count, e);
        for (uint32_t i = hidden; i < count; i++) total = total + e[i];
        g->sum_e[r] = g->sum_e[r] + total;
        g->variant->weigh(e + hidden, v + hidden, count - hidden, g->head_dim, g->row);
    }
    put_row(g, r);
    return LORA_OK;
}

static int add_tile_by_row(const struct group *g, uint32_t start) {
    int status = LORA_OK;
    for (uint32_t r = 0; r < g->count && status == LORA_OK; r++)
        status = add_row_tiles(g, r, start, start + TILE);
    return status;
}

static int weigh(const struct group *g) {
    memset(g->sum_e, 0, g->count * sizeof(float));
    memset(g->total_e, 0, g->count * sizeof(float));
    memset(g->total, 0, (uint64_t)parts(g->head_dim) * COLUMNS * g->count * sizeof(float));
    memset(g->result, 0, (uint64_t)parts(g->head_dim) * COLUMNS * g->count * sizeof(float));
    uint32_t end = g->several ? g->parting : g->max;
    int status = LORA_OK;
    for (uint32_t start = g->from; start < end && status == LORA_OK; start += TILE) {
        uint32_t count = end - start < TILE ? end - start : TILE;
        const uint16_t *values;
        if (start % LORA_CHUNK_POSITIONS == 0) close_chunk(g);
        status = find_tile(g, start, count, &values);
        if (status == LORA_OK && values) add_tile(g, start, count, values);
        else if (status == LORA_OK) status = add_tile_by_row(g, start);
    }
    for (uint32_t r = 0; g->several && r < g->count && status == LORA_OK; r++)
        status = add_row_tiles(g, r, g->parting, g->max);
    close_chunk(g);
    return status;
}

static void store(const struct group *g) {
    uint32_t width = parts(g->head_dim) * COLUMNS;
    for (uint32_t r = 0; r < g->count; r++) {
        const float *total = g->total + (uint64_t)r * width, sum = g->total_e[r] + g->sink[r];
        for (uint32_t d = 0; d < g->head_dim; d++) g->row[d] = total[d] / sum;
        uint16_t *y = values_of(g, g->job->attention.y, r);
        job_count_nonfinite(g->job, g->order[r % g->row_count],
                            g->variant->floats_to_halves(g->row, g->head_dim, y));
    }
}

/* The queries as panels. */
static void fill_queries(const struct group *g) {
    uint32_t bytes = g->head_dim * (uint32_t)sizeof(uint16_t);
    _Static_assert(GROUP_ROWS <= TILE, "a tile's values have room for the queries");
    for (uint32_t r = 0; r < g->count; r++)
        memcpy(g->values + r * g->head_dim, values_of(g, g->job->attention.q, r), bytes);
    struct rows q = {(uint8_t *)g->values, bytes};
    lora_panels_fill(g->variant, q, g->count, g->head_dim, g->q);
}

int lora_attend_rows(struct lora_job *job, struct attend *rows, const uint8_t *order,
                     uint32_t count, struct head_range heads, float *memory) {
    struct group g = {.job = job,
                      .variant = job->variant,
                      .rows = rows,
                      .order = order,
                      .row_count = count,
                      .count = count * heads.count,
                      .head = heads.first,
                      .kv_head = heads.kv_head,
                      .head_dim = job->attention.command->head_dim};
    lay_out(&g, memory);
    compare_rows(&g);
    fill_queries(&g);
    int status = score(&g);
    if (status == LORA_OK) status = weigh(&g);
    if (status == LORA_OK) store(&g);
    return status;
}

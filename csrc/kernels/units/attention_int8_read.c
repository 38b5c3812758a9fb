/* K and V of attention on INT8: blocks that several queries see are read once for all of them. */
#include <string.h>

#include "attention_int8.h"
#include "isa/half.h"

/* Read in one call: what is summed stays in registers, V in the first cache. */
#define RUN_TILES 8

/* Queries that read the same whole tiles. */
struct readers {
    const struct int8_row *a;
    const struct int8_query *of[GROUP_ROWS];
    uint32_t count;
};

static const int8_t *block_at(const struct int8_row *a, uint32_t page, uint32_t head, uint32_t v) {
    return (const int8_t *)kv_block_at(a->call, a->command->kv_layer, page, head, v);
}

/* Committed tiles that a row reads one after the other: of K also the last one, if it is not whole.
 */
static uint32_t tiles_read(const struct int8_row *a, uint32_t v) {
    uint32_t end = v ? a->seen.committed / TILE : (a->seen.committed + TILE - 1) / TILE;
    uint32_t first = row_first(a) / TILE;
    return end > first ? end - first : 0;
}

/* The block that is read `count` after the row's first of K (v = 0) or V: then come V, and K of the
 * next head. NULL: the thread reads no such block. */
static const int8_t *block_after(const struct int8_group *g, const struct int8_row *a, uint32_t v,
                                 uint32_t count) {
    for (uint32_t head = g->kv_head; head < g->kv_end; head += v, v = !v) {
        uint32_t tiles = tiles_read(a, v);
        if (count < tiles) return block_at(a, a->seen.pages[row_first(a) / TILE + count], head, v);
        count -= tiles;
    }
    return NULL;
}

/* Blocks of K (v = 0) or V of the tiles from `start` on; INTEGER_AHEAD places behind each, the one
 * that is fetched meanwhile. Places between are not looked at. */
static int find_blocks(const struct int8_group *g, const struct int8_row *a, uint32_t start,
                       uint32_t tiles, uint32_t v, const int8_t *blocks[]) {
    uint32_t read = start / TILE - row_first(a) / TILE;
    for (uint32_t t = 0; t < tiles; t++) {
        blocks[t] = block_at(a, a->seen.pages[start / TILE + t], g->kv_head, v);
        if (!blocks[t]) return LORA_ERR_ADDRESS;
    }
    for (uint32_t t = tiles; t < tiles + INTEGER_AHEAD; t++) {
        blocks[t] = t < INTEGER_AHEAD ? NULL : block_after(g, a, v, read + t);
        if (!blocks[t]) blocks[t] = blocks[tiles - 1];
    }
    return LORA_OK;
}

void lora_int8_fetch_first(const struct int8_group *g) {
    const struct int8_row *a = g->rows;
    for (uint32_t i = 0; i < INTEGER_AHEAD; i++) {
        const int8_t *block = block_after(g, a, 0, i);
        for (uint32_t at = 0; block && at < TILE * a->command->head_dim; at += LORA_LINE_BYTES)
            __builtin_prefetch(block + at, 0, 2);
    }
}

static void score_run(const struct int8_group *g, const struct readers *r, uint32_t start,
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

static void weigh_run(const struct int8_group *g, const struct readers *r, uint32_t start,
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
static int read_tiles(const struct int8_group *g, const struct readers *r, uint32_t v,
                      uint32_t start, uint32_t end) {
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
static struct readers readers_of(const struct int8_group *g, uint32_t i, bool all) {
    struct readers r = {.a = &g->rows[i], .count = 0};
    uint32_t first = all ? 0 : i, apart = all ? 1 : g->count;
    for (uint32_t n = first; n < g->query_count; n += apart) r.of[r.count++] = &g->queries[n];
    return r;
}

/* Tiles of the rows' window that not all of them see are read for all: scores before a row's first
 * position are not looked at, and weights there are 0. */
static int read_shared(const struct int8_group *g, uint32_t v) {
    struct readers r = readers_of(g, 0, true);
    return read_tiles(g, &r, v, g->from, g->parting);
}

/* The tiles from `parting` on; whole ones, and of K also the last committed one. */
static int read_own(const struct int8_group *g, uint32_t i, uint32_t v) {
    struct readers r = readers_of(g, i, false);
    uint32_t start = row_first(r.a) / TILE * TILE, end = r.a->seen.committed;
    start = start > g->parting ? start : g->parting;
    return read_tiles(g, &r, v, start, v ? end / TILE * TILE : end);
}

/* One block, and nothing to be read after it. */
static void fetch_nothing(const int8_t *blocks[1 + INTEGER_AHEAD]) {
    for (uint32_t i = 1; i <= INTEGER_AHEAD; i++) blocks[i] = blocks[0];
}

/* The queries of rows that see uncommitted positions in this scratch page. */
static struct readers readers_of_page(const struct int8_group *g, uint32_t page) {
    struct readers r = {.a = g->rows, .count = 0};
    for (uint32_t n = 0; n < g->query_count; n++)
        if (g->queries[n].a->seen.page_used[page]) r.of[r.count++] = &g->queries[n];
    return r;
}

/* Of a scratch page: each score goes to its position on the row's path. */
static void place_scores(const struct int8_query *query, uint32_t page, const float *scores) {
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
static int score_page(const struct int8_group *g, uint32_t page) {
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

int lora_int8_score(const struct int8_group *g) {
    int status = read_shared(g, 0);
    for (uint32_t i = 0; i < g->count && status == LORA_OK; i++) status = read_own(g, i, 0);
    for (uint32_t page = 0; page < SCRATCH_PAGES && status == LORA_OK; page++)
        status = score_page(g, page);
    return status;
}

/* V of the row's last tile: the positions of which are in several pages, often one after another in
 * a page. */
static int gather_tail(const struct int8_group *g, const struct int8_row *a, uint32_t start) {
    uint32_t head_dim = a->command->head_dim, end = row_positions(a), known = UINT32_MAX;
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
static int weigh_path(const struct int8_group *g, const struct readers *r) {
    uint32_t start = r->a->seen.committed / TILE * TILE, first = row_first(r->a) / TILE * TILE;
    const int8_t *blocks[1 + INTEGER_AHEAD] = {g->tail};
    fetch_nothing(blocks);
    struct integer_tiles v = {r->count, 1, r->a->command->head_dim, blocks};
    if (g->longest && g->from < first) first = g->from;
    for (start = start > first ? start : first; start < row_positions(r->a); start += TILE) {
        int status = gather_tail(g, r->a, start);
        if (status != LORA_OK) return status;
        weigh_run(g, r, start, &v);
    }
    return LORA_OK;
}

/* Rows one after another on one path read its tail once for all: what follows a row has a weight
 * of 0. */
int lora_int8_weigh(const struct int8_group *g) {
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

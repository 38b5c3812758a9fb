#include "attention_groups.h"

#include "attention_bias.h"
#include "visible.h"

#define TILE LORA_TILE_POSITIONS
#define SHARED_TILES 2 /* fewer are not worth it */

/* The committed tiles that a row sees whole, and its sequence's table. */
struct view {
    const uint16_t *pages; /* NULL: not alone in its sequence, or out of range */
    uint32_t first, end;
};

struct grouping {
    struct lora_job *job;
    struct view views[LORA_MAX_ROWS];
    bool taken[LORA_MAX_ROWS];
    uint32_t placed, groups;
};

static void find_views(struct grouping *g) {
    const struct lora_unit_call *call = g->job->call;
    uint32_t of_sequence[LORA_MAX_SEQUENCES] = {0};
    for (uint32_t i = 0; i < g->job->rows; i++) {
        uint32_t sequence = call_row(call, i)->sequence;
        if (sequence < LORA_MAX_SEQUENCES) of_sequence[sequence]++;
    }
    for (uint32_t i = 0; i < g->job->rows; i++) {
        struct view *view = &g->views[i];
        uint32_t sequence = call_row(call, i)->sequence, committed;
        view->pages = NULL;
        g->taken[i] = false;
        if (sequence >= LORA_MAX_SEQUENCES || of_sequence[sequence] != 1) continue;
        committed = call->state->lengths[sequence];
        if (committed > (uint64_t)call->list->max_tiles * TILE) continue; /* refused later */
        view->pages = lora_visible_pages(call, sequence);
        view->first = attention_first(g->job->attention.command, committed + 1) / TILE;
        view->end = committed / TILE;
    }
}

/* The last of SHARED_TILES tiles names the same page: those before it do too, as prefixes are
 * shared. */
static bool share(const struct view *a, const struct view *b) {
    if (!a->pages || !b->pages) return false;
    uint32_t tile = (a->first > b->first ? a->first : b->first) + SHARED_TILES - 1;
    return tile < a->end && tile < b->end && a->pages[tile] == b->pages[tile];
}

static void place(struct grouping *g, uint32_t row) {
    g->job->attention.order[g->placed++] = (uint8_t)row;
    g->taken[row] = true;
}

/* The rows placed since `first`, in groups of about the same size. */
static void close_groups(struct grouping *g, uint32_t first) {
    struct attention_job *t = &g->job->attention;
    uint32_t rows = g->placed - first, count = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
    for (uint32_t i = 0; i < count; i++)
        t->firsts[g->groups++] = (uint8_t)(first + rows * i / count);
    uint32_t longest = (rows + count - 1) / count;
    t->widest = longest > t->widest ? longest : t->widest;
}

uint32_t lora_attention_groups(struct lora_job *job) {
    struct grouping g = {.job = job};
    job->attention.widest = 0;
    find_views(&g);
    for (uint32_t i = 0; i < job->rows; i++) {
        if (g.taken[i]) continue;
        uint32_t first = g.placed, sequence = call_row(job->call, i)->sequence;
        place(&g, i);
        if (g.views[i].pages)
            for (uint32_t j = i + 1; j < job->rows; j++) {
                if (!g.taken[j] && share(&g.views[i], &g.views[j])) place(&g, j);
            }
        else
            for (uint32_t j = i + 1;
                 j < job->rows && !g.taken[j] && call_row(job->call, j)->sequence == sequence; j++)
                place(&g, j);
        close_groups(&g, first);
    }
    job->attention.firsts[g.groups] = (uint8_t)g.placed;
    return g.groups;
}

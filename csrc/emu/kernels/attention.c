/* Attention over KV blocks: the maximum first, then the sums, tile by tile in logical order. */
#include <math.h>

#include "half.h"
#include "job.h"

#define SCRATCH_PAGES (LORA_MAX_SCRATCH / LORA_TILE_POSITIONS)
#define TILE LORA_TILE_POSITIONS
#define ITEMS_WANTED 8      /* of a call with few rows: heads are dealt */
#define PRODUCTS_PER_NS 10

struct attend {
    struct lora_unit_call *call;
    const struct lora_attention *command;
    const struct lora_variant *variant;
    const uint16_t *pages; /* of the row's sequence */
    uint32_t committed;    /* positions of it */
    uint32_t depth;        /* uncommitted rows seen: path[0..depth-1], the row itself last */
    uint16_t path[LORA_MAX_SCRATCH];
    uint8_t page_used[SCRATCH_PAGES];
    float *q, *s, *e, *sum; /* [head_dim], [positions], [positions], [head_dim] */
};

/* K (v = 0) or V (v = 1) of one page and local KV head. */
static const uint16_t *kv_block(const struct attend *a, uint32_t page, uint32_t head, uint32_t v) {
    const struct lora_list *list = a->call->list;
    uint64_t stride = ((uint64_t)list->kv_layers * list->kv_heads * 2) | 1;
    uint64_t inner = ((uint64_t)a->command->kv_layer * list->kv_heads + head) * 2 + v;
    uint64_t j = page * stride + inner;
    uint32_t bank = list->kv_bank_first + (uint32_t)(j % list->kv_bank_count);
    uint64_t line = list->kv_line + j / list->kv_bank_count * list->head_dim;
    return call_at(a->call, bank, line * LORA_LINE_BYTES, 64ull * list->head_dim, 2);
}

static int find_path(struct attend *a, const struct lora_row *row) {
    const struct lora_step_state *state = a->call->state;
    uint16_t reversed[LORA_MAX_SCRATCH];
    uint32_t depth = 0;
    for (int32_t slot = row->slot; slot != -1; slot = state->slots[slot].parent) {
        if (slot < 0 || slot >= LORA_MAX_SCRATCH || depth == LORA_MAX_SCRATCH)
            return LORA_ERR_ROW;
        reversed[depth++] = (uint16_t)slot;
    }
    for (uint32_t i = 0; i < SCRATCH_PAGES; i++)
        a->page_used[i] = 0;
    for (uint32_t i = 0; i < depth; i++) {
        a->path[i] = reversed[depth - 1 - i];
        a->page_used[a->path[i] / TILE] = 1;
    }
    a->depth = depth;
    return LORA_OK;
}

static int find_row(struct attend *a, const struct lora_row *row) {
    const struct lora_list *list = a->call->list;
    if (row->sequence >= LORA_MAX_SEQUENCES)
        return LORA_ERR_ROW;
    a->committed = a->call->state->lengths[row->sequence];
    uint64_t bytes = 2ull * list->max_tiles;
    uint64_t offset =
        (uint64_t)list->table_line * LORA_LINE_BYTES + row->sequence * padded_lines(bytes);
    a->pages = call_at(a->call, list->table_bank, offset, bytes, 2);
    if (!a->pages)
        return LORA_ERR_ADDRESS;
    if (a->committed > (uint64_t)list->max_tiles * TILE)
        return LORA_ERR_ROW;
    return find_path(a, row);
}

/* s[position] of one query head, and how many there are. */
static int score_head(struct attend *a, uint32_t kv_head, float *largest) {
    float scale = float_of_bits(a->command->scale);
    uint32_t head_dim = a->command->head_dim;
    float block[SCRATCH_PAGES][TILE];
    for (uint32_t start = 0; start < a->committed; start += TILE) {
        const uint16_t *k = kv_block(a, a->pages[start / TILE], kv_head, 0);
        if (!k)
            return LORA_ERR_ADDRESS;
        a->variant->scores(a->q, k, head_dim, a->s + start); /* lanes past the end: replaced */
    }
    for (uint32_t page = 0; page < SCRATCH_PAGES; page++) {
        if (!a->page_used[page])
            continue;
        const uint16_t *k = kv_block(a, page, kv_head, 0);
        if (!k)
            return LORA_ERR_ADDRESS;
        a->variant->scores(a->q, k, head_dim, block[page]);
    }
    for (uint32_t i = 0; i < a->depth; i++)
        a->s[a->committed + i] = block[a->path[i] / TILE][a->path[i] % TILE];
    float most = -INFINITY;
    for (uint32_t i = 0; i < a->committed + a->depth; i++) {
        a->s[i] = a->s[i] * scale;
        most = a->s[i] > most ? a->s[i] : most;
    }
    *largest = most;
    return LORA_OK;
}

/* V's row of each position of the tile that begins at `start`. */
static int find_values(const struct attend *a, uint32_t kv_head, uint32_t start, uint32_t count,
                       const uint16_t *v[TILE]) {
    uint32_t head_dim = a->command->head_dim;
    const uint16_t *block = NULL;
    if (start < a->committed) {
        block = kv_block(a, a->pages[start / TILE], kv_head, 1);
        if (!block)
            return LORA_ERR_ADDRESS;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (start + i < a->committed) {
            v[i] = block + (uint64_t)i * head_dim;
            continue;
        }
        uint32_t slot = a->path[start + i - a->committed];
        const uint16_t *scratch = kv_block(a, slot / TILE, kv_head, 1);
        if (!scratch)
            return LORA_ERR_ADDRESS;
        v[i] = scratch + (uint64_t)(slot % TILE) * head_dim;
    }
    return LORA_OK;
}

/* a->q holds one head's query; a->sum becomes sum(e*v)/sum(e). */
static int attend_head(struct attend *a, uint32_t kv_head) {
    uint32_t head_dim = a->command->head_dim, positions = a->committed + a->depth;
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

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct attention_job *t = &job->attention;
    uint64_t size = 2 * t->positions + 2ull * t->command->head_dim;
    struct attend a = {.call = job->call, .command = t->command, .variant = job->variant};
    a.s = t->scratch + size * thread;
    a.e = a.s + t->positions;
    a.q = a.e + t->positions;
    a.sum = a.q + t->command->head_dim;
    uint32_t row = item / cuts(job), first = item % cuts(job) * t->heads;
    uint32_t left = t->command->q_heads - first;
    int status = find_row(&a, call_row(job->call, row));
    if (status == LORA_OK)
        status = attend_heads(&a, job, row, first, first + (left < t->heads ? left : t->heads));
    return status;
}

/* The longest sequence of the step decides how much room the scores take, and the work. */
static uint32_t most_positions(const struct lora_job *job) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < job->rows; i++) {
        uint32_t sequence = call_row(job->call, i)->sequence;
        uint32_t length = sequence < LORA_MAX_SEQUENCES ? job->call->state->lengths[sequence] : 0;
        most = length > most ? length : most;
    }
    uint64_t room = (uint64_t)job->call->list->max_tiles * TILE;
    return most < room ? most : (uint32_t)room;
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
        list->kv_bank_count == 0 || list->max_tiles > 0x10000)
        return LORA_ERR_SIZE;
    uint64_t width = 2ull * c->q_heads * c->head_dim;
    t->q = call_operand(job->call, LORA_BANK_ONCHIP, c->q_offset, c->q_stride, width, 2);
    t->y = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride, width, 2);
    if (!t->q.base || !t->y.base)
        return LORA_ERR_ADDRESS;
    t->positions = ((uint64_t)most_positions(job) + TILE - 1) / TILE * TILE + LORA_MAX_SCRATCH;
    uint64_t a_thread = 2 * t->positions + 2ull * c->head_dim;
    t->scratch = lora_job_memory(job, a_thread * job->threads * sizeof(float));
    if (!t->scratch)
        return LORA_ERR_MEMORY;
    cut(job);
    job->run = run;
    return LORA_OK;
}

/* Attention over KV blocks: the maximum first, then the sums, tile by tile in logical order. */
#include <math.h>
#include <stdlib.h>

#include "half.h"
#include "operands.h"
#include "variant.h"

#define SCRATCH_PAGES (LORA_MAX_SCRATCH / LORA_TILE_POSITIONS)
#define TILE LORA_TILE_POSITIONS

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

static int attend_row(struct attend *a, uint32_t row, const uint16_t *q, uint16_t *y) {
    const struct lora_attention *c = a->command;
    for (uint32_t head = 0; head < c->q_heads; head++) {
        uint32_t place = head * c->head_dim;
        uint32_t global = (c->q_first + head) / c->group;
        if (global < c->kv_first || global - c->kv_first >= c->kv_heads)
            return LORA_ERR_SIZE;
        a->variant->halves_to_floats(q + place, c->head_dim, a->q);
        int status = attend_head(a, global - c->kv_first);
        if (status != LORA_OK)
            return status;
        uint32_t bad = a->variant->floats_to_halves(a->sum, c->head_dim, y + place);
        call_count_nonfinite(a->call, row, bad);
    }
    return LORA_OK;
}

static int attend_rows(struct attend *a, struct rows q, struct rows y) {
    for (uint32_t row = 0; row < call_rows(a->call); row++) {
        int status = find_row(a, call_row(a->call, row));
        if (status == LORA_OK)
            status = attend_row(a, row, half_row(q, row), half_row(y, row));
        if (status != LORA_OK)
            return status;
    }
    return LORA_OK;
}

int lora_native_attention(void *context, struct lora_unit_call *call) {
    (void)context;
    const struct lora_attention *c = (const struct lora_attention *)(const void *)call->command;
    const struct lora_list *list = call->list;
    struct attend a = {.call = call, .command = c, .variant = lora_variant_current()};
    call->nonfinite_count = 0;
    call->nonfinite_row = NO_ROW;
    if (call_rows(call) == 0)
        return LORA_OK;
    if (call_rows(call) > LORA_MAX_ROWS || c->group == 0 || c->head_dim != list->head_dim ||
        c->head_dim == 0 || list->kv_bank_count == 0 || list->max_tiles > 0x10000)
        return LORA_ERR_SIZE;
    uint64_t width = 2ull * c->q_heads * c->head_dim;
    struct rows q = call_operand(call, LORA_BANK_ONCHIP, c->q_offset, c->q_stride, width, 2);
    struct rows y = call_operand(call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride, width, 2);
    if (!q.base || !y.base)
        return LORA_ERR_ADDRESS;
    uint64_t positions = (uint64_t)list->max_tiles * TILE + LORA_MAX_SCRATCH;
    float *memory = malloc((2 * positions + 2ull * c->head_dim) * sizeof(float));
    if (!memory)
        return LORA_ERR_MEMORY;
    a.s = memory;
    a.e = a.s + positions;
    a.q = a.e + positions;
    a.sum = a.q + c->head_dim;
    int status = attend_rows(&a, q, y);
    free(memory);
    return status;
}

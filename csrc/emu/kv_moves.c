/* Moves within the KV cache: a row's K and V into its scratch slot, committed rows to their logical
 * positions, pages for a fork. A block holds 32 positions of one layer, head and K or V: K as
 * [head_dim][32], V as [32][head_dim], FP16 or INT8. Where each head of a position has its own
 * scale, the scales follow the values. Only the page table says which page a tile has. */
#include "board.h"
#include "lora/kv_layout.h"

#include <stdatomic.h>
#include <string.h>

#define TILE LORA_TILE_POSITIONS
#define LINES_ALONE 1024 /* fewer are moved sooner by one thread */
#define ROWS_AHEAD 6     /* that are fetched: rows lie too far apart for the hardware to do it */

struct kv_position { /* one position of the cache */
    uint32_t page, lane;
};

struct kv {
    struct lora_pool *pool;
    const struct emu_memory *memory;
    const struct lora_list *list;
    uint32_t width;       /* bytes of a value */
    uint32_t value_bytes; /* of a block; its scales follow */
    bool scaled;
};

static bool kv_open(struct kv *kv, const struct emu_board *board, const struct lora_list *list) {
    uint32_t banks = (uint32_t)list->kv_bank_first + list->kv_bank_count;
    uint32_t spill = (uint32_t)list->kv_spill_bank_first + list->kv_spill_bank_count;
    kv->pool = board->cluster->pool;
    kv->memory = &board->memory;
    kv->list = list;
    kv->width = kv_element_bytes(list);
    kv->value_bytes = kv_value_bytes(list);
    kv->scaled = list->kv_type == LORA_KV_INT8_HEADS;
    return list->kv_bank_count > 0 && banks <= EMU_BANKS && spill <= EMU_BANKS &&
           list->head_dim > 0 && kv_type_right(list);
}

static uint8_t *block_at(const struct kv *kv, uint32_t page, uint32_t layer, uint32_t head,
                         uint32_t v) {
    const struct lora_list *list = kv->list;
    if (page >= list->page_count) return NULL;
    struct kv_place place = kv_block_place(list, page, layer, head, v);
    return emu_memory_at(kv->memory, place.bank, place.offset, place.bytes);
}

static bool slot_position(const struct lora_list *list, uint32_t slot, struct kv_position *found) {
    *found = (struct kv_position){slot / TILE, slot % TILE};
    return slot < list->max_scratch;
}

static bool slot_of(const struct lora_list *list, const struct lora_step_state *state, uint32_t row,
                    struct kv_position *found) {
    int32_t slot = state->rows[row].slot;
    return slot >= 0 && slot_position(list, (uint32_t)slot, found);
}

/* --- KV_STORE --------------------------------------------------------------------------------- */
/* Values `width` bytes wide, each onto a line of its own: one position of K. */
static void scatter(uint8_t *to, uint32_t to_step, const uint8_t *from, uint32_t from_step,
                    uint32_t width, uint32_t count) {
    if (width == 1) {
        for (uint32_t d = 0; d < count; d++) to[d * to_step] = from[d * from_step];
        return;
    }
    uint16_t *halves = (uint16_t *)(void *)to;
    const uint16_t *source = (const uint16_t *)(const void *)from;
    for (uint32_t d = 0; d < count; d++) halves[d * to_step] = source[d * from_step];
}

struct stored_row { /* on-chip; the scales NULL where there are none */
    const uint8_t *k, *v, *k_scales, *v_scales;
};

static void store_head(const struct kv *kv, uint8_t *k_block, uint8_t *v_block, uint32_t lane,
                       const struct stored_row *row, uint32_t head) {
    uint32_t head_dim = kv->list->head_dim, bytes = head_dim * kv->width;
    scatter(k_block + lane * kv->width, TILE, row->k + (size_t)head * bytes, 1, kv->width,
            head_dim);
    memcpy(v_block + (size_t)lane * bytes, row->v + (size_t)head * bytes, bytes);
    if (!kv->scaled) return;
    memcpy(k_block + kv->value_bytes + lane * 2, row->k_scales + head * 2, 2);
    memcpy(v_block + kv->value_bytes + lane * 2, row->v_scales + head * 2, 2);
}

static bool find_row(const struct kv *kv, const struct lora_kv_store *command, uint32_t i,
                     struct stored_row *row) {
    const uint64_t at = (uint64_t)i * command->stride;
    const uint64_t scales_at = (uint64_t)i * command->scale_stride;
    uint64_t span = (uint64_t)command->kv_heads * command->head_dim * kv->width;
    uint64_t scales = kv->scaled ? command->kv_heads * 2ull : 0;
    row->k = emu_memory_at(kv->memory, LORA_BANK_ONCHIP, command->k_offset + at, span);
    row->v = emu_memory_at(kv->memory, LORA_BANK_ONCHIP, command->v_offset + at, span);
    row->k_scales = row->v_scales = NULL;
    if (kv->scaled) {
        row->k_scales = emu_memory_at(kv->memory, LORA_BANK_ONCHIP, command->k_scales + scales_at,
                                      scales);
        row->v_scales = emu_memory_at(kv->memory, LORA_BANK_ONCHIP, command->v_scales + scales_at,
                                      scales);
    }
    return row->k && row->v && (!kv->scaled || (row->k_scales && row->v_scales));
}

struct stored { /* rows first..end-1, whose slots are on one page; some heads an item */
    const struct kv *kv;
    const struct lora_kv_store *command;
    const struct lora_step_state *state;
    uint32_t first, end, items;
    struct stored_row rows[LORA_TILE_POSITIONS];
    atomic_bool failed;
};

static void fetch_head(const struct kv *kv, const struct stored_row *row, uint32_t head) {
    uint32_t bytes = kv->list->head_dim * kv->width;
    for (uint32_t at = 0; at < bytes; at += LORA_LINE_BYTES) {
        __builtin_prefetch(row->k + (size_t)head * bytes + at);
        __builtin_prefetch(row->v + (size_t)head * bytes + at);
    }
}

/* A head's block stays in the cache for all rows. */
static void store_heads(void *context, uint32_t item, uint32_t thread) {
    struct stored *stored = context;
    const struct kv *kv = stored->kv;
    const struct lora_row *rows = stored->state->rows;
    const uint32_t heads = stored->command->kv_heads, layer = stored->command->kv_layer;
    const uint32_t page = (uint32_t)rows[stored->first].slot / TILE;
    (void)thread;
    for (uint32_t head = heads * item / stored->items; head < heads * (item + 1) / stored->items;
         head++) {
        uint8_t *k_block = block_at(kv, page, layer, head, 0);
        uint8_t *v_block = block_at(kv, page, layer, head, 1);
        if (!k_block || !v_block) {
            atomic_store(&stored->failed, true);
            return;
        }
        for (uint32_t i = stored->first; i < stored->end; i++) {
            const struct stored_row *row = &stored->rows[i - stored->first];
            if (i + ROWS_AHEAD < stored->end) fetch_head(kv, row + ROWS_AHEAD, head);
            store_head(kv, k_block, v_block, (uint32_t)rows[i].slot % TILE, row, head);
        }
    }
}

static int store_rows(struct stored *stored) {
    const struct kv *kv = stored->kv;
    const struct lora_kv_store *command = stored->command;
    for (uint32_t i = stored->first; i < stored->end; i++)
        if (!find_row(kv, command, i, &stored->rows[i - stored->first])) return LORA_ERR_ADDRESS;
    uint64_t lines = (uint64_t)command->kv_heads * command->head_dim *
                     (stored->end - stored->first);
    bool alone = lines < LINES_ALONE;
    stored->items = alone ? 1 : lora_pool_threads(kv->pool);
    lora_pool_run(alone ? NULL : kv->pool, stored->items, store_heads, stored);
    return atomic_load(&stored->failed) ? LORA_ERR_ADDRESS : LORA_OK;
}

/* Rows from `first` on whose slots are on its page; as many as a page has at most. 0: the first
 * one's slot is wrong. */
static uint32_t rows_on_page(const struct lora_list *list, const struct lora_step_state *state,
                             uint32_t first) {
    struct kv_position found, at;
    uint32_t count = 0;
    if (!slot_of(list, state, first, &found)) return 0;
    while (count < TILE && first + count < state->row_count &&
           slot_of(list, state, first + count, &at) && at.page == found.page)
        count++;
    return count;
}

int emu_kv_store(struct emu_board *board, const struct lora_kv_store *command,
                 const struct lora_list *list, const struct lora_step_state *state) {
    struct kv kv;
    if (!kv_open(&kv, board, list) || command->head_dim != list->head_dim ||
        command->kv_heads > list->kv_heads || command->kv_layer >= list->kv_layers ||
        state->row_count > LORA_MAX_ROWS)
        return LORA_ERR_SIZE;
    for (uint32_t i = 0, count; i < state->row_count; i += count) {
        count = rows_on_page(list, state, i);
        if (count == 0) return LORA_ERR_ROW;
        struct stored stored = {
            .kv = &kv, .command = command, .state = state, .first = i, .end = i + count};
        int status = store_rows(&stored);
        if (status) return status;
    }
    return LORA_OK;
}

/* --- KV_COMMIT -------------------------------------------------------------------------------- */
struct commit { /* of these layers */
    struct kv kv;
    uint32_t first, layers;
};

struct copy { /* of some positions, a layer an item */
    const struct commit *commit;
    struct kv_position from, to;
    uint32_t count;
    atomic_bool failed;
};

/* Each position of K lies on a line of its own: one position is moved without a call an element. */
static void copy_keys(const struct kv *kv, uint8_t *to, const uint8_t *from, uint32_t count) {
    uint32_t line = TILE * kv->width;
    if (count == 1) {
        scatter(to, TILE, from, TILE, kv->width, kv->list->head_dim);
        return;
    }
    for (uint32_t d = 0; d < kv->list->head_dim; d++)
        memmove(to + d * line, from + d * line, (size_t)count * kv->width);
}

static void copy_head(const struct copy *copy, uint8_t *const to[2], const uint8_t *const from[2]) {
    const struct kv *kv = &copy->commit->kv;
    uint32_t from_lane = copy->from.lane, to_lane = copy->to.lane;
    size_t row = (size_t)kv->list->head_dim * kv->width;
    copy_keys(kv, to[0] + to_lane * kv->width, from[0] + from_lane * kv->width, copy->count);
    memmove(to[1] + to_lane * row, from[1] + from_lane * row, copy->count * row);
    for (uint32_t v = 0; kv->scaled && v < 2; v++)
        memmove(to[v] + kv->value_bytes + to_lane * 2, from[v] + kv->value_bytes + from_lane * 2,
                (size_t)copy->count * 2);
}

static void copy_layer(void *context, uint32_t item, uint32_t thread) {
    struct copy *copy = context;
    const struct kv *kv = &copy->commit->kv;
    const uint32_t layer = copy->commit->first + item;
    struct kv_position from = copy->from, to = copy->to;
    (void)thread;
    for (uint32_t head = 0; head < kv->list->kv_heads; head++) {
        const uint8_t *source[2] = {block_at(kv, from.page, layer, head, 0),
                                    block_at(kv, from.page, layer, head, 1)};
        uint8_t *target[2] = {block_at(kv, to.page, layer, head, 0),
                              block_at(kv, to.page, layer, head, 1)};
        if (!source[0] || !source[1] || !target[0] || !target[1]) {
            atomic_store(&copy->failed, true);
            return;
        }
        copy_head(copy, target, source);
    }
}

static int copy_positions(const struct commit *commit, struct kv_position from,
                          struct kv_position to, uint32_t count) {
    const struct lora_list *list = commit->kv.list;
    struct copy copy = {.commit = commit, .from = from, .to = to, .count = count};
    uint64_t lines = (uint64_t)commit->layers * list->kv_heads * list->head_dim;
    lora_pool_run(lines < LINES_ALONE ? NULL : commit->kv.pool, commit->layers, copy_layer, &copy);
    return atomic_load(&copy.failed) ? LORA_ERR_ADDRESS : LORA_OK;
}

static bool logical_position(const struct kv *kv, uint32_t sequence, uint32_t position,
                             struct kv_position *found) {
    const struct lora_list *list = kv->list;
    uint32_t tile = position / TILE;
    if (sequence >= list->max_sequences || tile >= list->max_tiles) return false;
    uint64_t row_lines = ((uint64_t)list->max_tiles * 2 + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES;
    uint64_t offset = (list->table_line + sequence * row_lines) * LORA_LINE_BYTES + tile * 2ull;
    const uint8_t *entry = emu_memory_at(kv->memory, list->table_bank, offset, 2);
    if (!entry) return false;
    uint16_t page;
    memcpy(&page, entry, sizeof page);
    *found = (struct kv_position){page, position % TILE};
    return page < list->page_count;
}

static bool path_position(const struct kv *kv, const struct lora_kv_op *op, const uint8_t *path,
                          uint32_t i, struct kv_position *from, struct kv_position *to) {
    uint16_t slot;
    memcpy(&slot, path + ((size_t)op->b + i) * sizeof slot, sizeof slot);
    return slot_position(kv->list, slot, from) && logical_position(kv, op->sequence, op->a + i, to);
}

static bool follows(struct kv_position at, struct kv_position first, uint32_t count) {
    return at.page == first.page && at.lane == first.lane + count;
}

/* Positions that are adjacent in source and target move together: a prompt's rows, a chain's. Not
 * within one page: there one move could change what the next one reads. */
static int commit_path(const struct commit *commit, const struct lora_kv_op *op,
                       const uint8_t *path, uint32_t path_count) {
    const struct kv *kv = &commit->kv;
    if (op->b > path_count || op->c > path_count - op->b) return LORA_ERR_KV;
    for (uint32_t i = 0, count; i < op->c; i += count) {
        struct kv_position from, to, next_from, next_to;
        if (!path_position(kv, op, path, i, &from, &to)) return LORA_ERR_KV;
        for (count = 1; i + count < op->c && from.page != to.page; count++)
            if (!path_position(kv, op, path, i + count, &next_from, &next_to) ||
                !follows(next_from, from, count) || !follows(next_to, to, count))
                break;
        int status = copy_positions(commit, from, to, count);
        if (status) return status;
    }
    return LORA_OK;
}

static int copy_page(const struct commit *commit, const struct lora_kv_op *op) {
    const uint32_t pages = commit->kv.list->page_count;
    if (op->a >= pages || op->b >= pages || op->c > TILE) return LORA_ERR_KV;
    return copy_positions(commit, (struct kv_position){op->a, 0}, (struct kv_position){op->b, 0},
                          op->c);
}

/* Tables and lengths are the firmware's own; the data moves are all that the unit has to do. */
int emu_kv_commit(struct emu_board *board, const struct lora_kv_commit *command,
                  const struct lora_list *list, const struct lora_step_state *state) {
    struct commit commit = {.first = command->kv_layer};
    const struct kv *kv = &commit.kv;
    if (state->kv_op_count == 0) return LORA_OK;
    if (!kv_open(&commit.kv, board, list) || !kv_commit_layers(list, command, &commit.layers) ||
        state->kv_op_count > LORA_MAX_KV_OPS ||
        state->path_count > LORA_MAX_ROWS * LORA_MAX_SEQUENCES)
        return LORA_ERR_SIZE;
    const uint8_t *ops = emu_memory_at(kv->memory, list->control_bank, state->kv_ops_offset,
                                       (uint64_t)state->kv_op_count * sizeof(struct lora_kv_op));
    const uint8_t *path = emu_memory_at(kv->memory, list->control_bank, state->path_offset,
                                        (uint64_t)state->path_count * 2);
    if (!ops || (state->path_count && !path)) return LORA_ERR_ADDRESS;
    for (uint32_t i = 0; i < state->kv_op_count; i++) {
        struct lora_kv_op op;
        int status = LORA_OK;
        memcpy(&op, ops + i * sizeof op, sizeof op);
        if (op.kind == LORA_KV_COMMIT) status = commit_path(&commit, &op, path, state->path_count);
        if (op.kind == LORA_KV_COPY) status = copy_page(&commit, &op);
        if (status) return status;
    }
    return LORA_OK;
}

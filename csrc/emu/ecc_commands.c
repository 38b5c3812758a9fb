/* What a unit's command reads of the banks: the ranges that the firmware has checked at
 * registration (firmware/fw_check*.c), as far as one word is concerned. */
#include "board.h"
#include "lora/kv_layout.h"
#include "lora/recurrence_layout.h"
#include "lora/weight_blocks.h"

#include <string.h>

#define TILE LORA_TILE_POSITIONS
#define LINE LORA_LINE_BYTES

struct reader {
    struct emu_board *board;
    const struct lora_unit_call *call;
    bool wrong;
};

static void reads(struct reader *reader, uint32_t bank, uint64_t offset, uint64_t bytes) {
    if (emu_ecc_read(reader->board, bank, offset, bytes)) reader->wrong = true;
}

static uint64_t padded(uint64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static uint32_t rows_of(const struct lora_unit_call *call) {
    return call->command->flags & LORA_FLAG_SELECTED ? call->state->selected_count
                                                     : call->state->row_count;
}

static const struct lora_row *row_at(const struct lora_unit_call *call, uint32_t i) {
    uint32_t row = call->command->flags & LORA_FLAG_SELECTED ? call->state->selected[i] : i;
    return &call->state->rows[row];
}

static void reads_rows(struct reader *reader, uint32_t bank, uint32_t offset, uint32_t stride,
                       uint32_t rows, uint64_t bytes) {
    for (uint32_t i = 0; i < rows; i++) reads(reader, bank, offset + (uint64_t)i * stride, bytes);
}

/* --- MATRIX ----------------------------------------------------------------------------------- */
/* Of a bank's requests the first and the last one, by their numbers in the matrix. */
static void reads_weights(struct reader *reader, const struct lora_matrix *matrix) {
    uint64_t request = (uint64_t)matrix->merge * lora_weight_block_bytes(matrix->weight_type);
    uint32_t blocks = (matrix->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K *
                      ((matrix->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N);
    uint32_t banks = matrix->bank_count;
    if (!blocks || !banks || !request) return;
    uint32_t last = matrix->first + (blocks + matrix->merge - 1) / matrix->merge - 1;
    for (uint32_t i = 0; i < banks; i++) {
        uint32_t low = matrix->first + (i + banks - matrix->first % banks) % banks;
        if (low > last) continue;
        uint32_t high = last - (last + banks - i) % banks;
        reads(reader, matrix->bank_first + i,
              (uint64_t)matrix->weight_line * LINE + low / banks * request,
              (high / banks - low / banks + 1) * request);
    }
}

static void reads_matrix(struct reader *reader, const struct lora_matrix *matrix) {
    uint32_t type = matrix->weight_type & LORA_WEIGHT_TYPE_MASK;
    bool scaled = type == LORA_WEIGHT_INT8 || type == LORA_WEIGHT_W4A8;
    uint64_t bias = matrix->flags & LORA_FLAG_NO_BIAS ? 0 : 2ull * matrix->n;
    reads_weights(reader, matrix);
    if (scaled) bias += padded(4ull * matrix->n);
    if (matrix->bias_bank != LORA_NO_BANK)
        reads(reader, matrix->bias_bank, (uint64_t)matrix->bias_line * LINE, bias);
    reads_rows(reader, matrix->x_bank, matrix->x_offset, matrix->x_stride, rows_of(reader->call),
               (uint64_t)matrix->k * (scaled ? 1 : 2));
}

/* --- EXPERTS: weights, scales and biases of those that rows have chosen
 * ---------------------------------
 */
static void reads_experts(struct reader *reader, const struct lora_experts *c) {
    uint32_t blocks = (c->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K *
                      ((c->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N);
    uint32_t requests = (blocks + c->merge - 1u) / c->merge;
    uint64_t lines = (uint64_t)c->merge * lora_weight_block_bytes(c->weight_type) / LINE;
    uint32_t type = c->weight_type & LORA_WEIGHT_TYPE_MASK;
    bool scaled = type == LORA_WEIGHT_INT8 || type == LORA_WEIGHT_W4A8;
    bool chosen[LORA_MAX_EXPERTS];
    emu_chosen(reader->call, chosen);
    for (uint32_t expert = 0; expert < c->experts; expert++) {
        if (!chosen[expert]) continue;
        uint64_t request = c->first + (uint64_t)expert * requests;
        struct lora_matrix own = {
            .bank_first = c->bank_first,
            .bank_count = c->bank_count,
            .merge = c->merge,
            .weight_type = c->weight_type,
            .weight_line = (uint32_t)(c->weight_line + request / c->bank_count * lines),
            .first = (uint16_t)(request % c->bank_count),
            .k = c->k,
            .n = c->n};
        reads_weights(reader, &own);
        uint64_t table = scaled ? padded(4ull * c->n) : 0, at = (uint64_t)c->scale_line * LINE;
        if (c->flags & LORA_FLAG_EXPERT_BIAS) table += padded(2ull * c->n);
        if (table) reads(reader, c->scale_bank, at + expert * table, table);
    }
}

/* --- adapters: whole slots of the rows ----------------------------------------------------------
 */
static void reads_slot(struct reader *reader, uint32_t slot) {
    const struct lora_list *list = reader->call->list;
    if (!list->adapter_bank_count || slot >= list->adapter_slots) return;
    for (uint32_t chunk = 0; chunk < list->adapter_chunks; chunk++) {
        uint64_t number = (uint64_t)slot * list->adapter_chunks + chunk;
        reads(reader, list->adapter_bank_first + (uint32_t)(number % list->adapter_bank_count),
              (uint64_t)list->adapter_line * LINE +
                  number / list->adapter_bank_count * LORA_ADAPTER_CHUNK,
              LORA_ADAPTER_CHUNK);
    }
}

static void reads_adapters(struct reader *reader) {
    for (uint32_t i = 0; i < rows_of(reader->call); i++)
        if (row_at(reader->call, i)->adapter >= 0)
            reads_slot(reader, (uint32_t)row_at(reader->call, i)->adapter);
}

/* --- VECTOR ----------------------------------------------------------------------------------- */
static void reads_table_row(struct reader *reader, uint32_t bank, uint32_t line, uint64_t row,
                            uint64_t bytes) {
    if (bank != LORA_NO_BANK)
        reads(reader, bank, (uint64_t)line * LINE + row * padded(bytes), bytes);
}

static void reads_embeddings(struct reader *reader, const struct lora_vector *v) {
    bool tokens = v->op == LORA_VEC_EMBED || v->op == LORA_VEC_EMBED_SCALED;
    for (uint32_t i = 0; i < rows_of(reader->call); i++) {
        const struct lora_row *row = row_at(reader->call, i);
        if (tokens && row->flags & LORA_ROW_VECTOR)
            reads(reader, reader->call->list->control_bank,
                  reader->call->state->block_offset + (uint64_t)row->token + 2ull * v->first,
                  2ull * v->columns);
        else if (tokens && v->flags & LORA_FLAG_TOKEN_BLOCKS) {
            struct lora_matrix matrix = lora_token_matrix(v, reader->call->list->vocabulary);
            reads_weights(reader, &matrix);
        } else if (tokens)
            reads_table_row(reader, v->a_bank, v->a_line, row->token, 2ull * v->columns);
        reads_table_row(reader, v->b_bank, v->b_line, (uint64_t)row->position + v->extra,
                        2ull * v->columns);
    }
}

static void reads_vector(struct reader *reader, const struct lora_vector *v) {
    switch (v->op) {
    case LORA_VEC_EMBED:
    case LORA_VEC_EMBED_SCALED:
    case LORA_VEC_ADD_POSITION: reads_embeddings(reader, v); break;
    case LORA_VEC_LN_APPLY: reads_table_row(reader, v->b_bank, v->b_line, 0, 2ull * v->columns);
    /* fall through */
    case LORA_VEC_RMS_APPLY:
    case LORA_VEC_RMS_ROW:
        reads_table_row(reader, v->a_bank, v->a_line, 0, 2ull * v->columns);
        break;
    case LORA_VEC_RMS_HEADS:
        reads_table_row(reader, v->a_bank, v->a_line, 0, 2ull * v->extra);
        break;
    case LORA_VEC_PERMUTE:
    case LORA_VEC_ROUTE_SIGMOID:
        reads_table_row(reader, v->a_bank, v->a_line, 0, 4ull * v->columns);
        break;
    case LORA_VEC_ROPE:
        for (uint32_t i = 0; i < rows_of(reader->call); i++)
            reads_table_row(reader, v->a_bank, v->a_line, row_at(reader->call, i)->position,
                            4ull * v->extra);
        break;
    case LORA_VEC_ARGMAX:
        reads_rows(reader, v->y_bank, v->x_offset, v->x_stride, rows_of(reader->call),
                   4ull * v->columns);
        break;
    case LORA_VEC_SCALE:
    case LORA_VEC_SOFTCAP:
        reads_rows(reader, v->y_bank, v->y_offset, v->y_stride, rows_of(reader->call),
                   4ull * v->columns);
        break;
    default: break;
    }
}

/* --- K and V ---------------------------------------------------------------------------------- */
static void reads_page(struct reader *reader, uint32_t layer, uint32_t page) {
    const struct lora_list *list = reader->call->list;
    for (uint32_t block = 0; page < list->page_count && block < 2u * list->kv_heads; block++) {
        struct kv_place place = kv_block_place(list, page, layer, block / 2, block % 2);
        reads(reader, place.bank, place.offset, place.bytes);
    }
}

/* The entry of a sequence's table is read as well. */
static uint32_t page_of(struct reader *reader, uint32_t sequence, uint32_t tile) {
    const struct lora_list *list = reader->call->list;
    uint64_t at = (uint64_t)list->table_line * LINE + sequence * padded(2ull * list->max_tiles) +
                  2ull * tile;
    const uint8_t *entry = emu_memory_at(&reader->board->memory, list->table_bank, at, 2);
    reads(reader, list->table_bank, at, 2);
    return entry ? (uint32_t)entry[0] | (uint32_t)entry[1] << 8 : UINT32_MAX;
}

/* Of the last `most` tiles, and the row's slots. */
static void reads_row_kv(struct reader *reader, uint32_t layer, const struct lora_row *row,
                         uint32_t most) {
    const struct lora_step_state *state = reader->call->state;
    const struct lora_list *list = reader->call->list;
    if (row->sequence >= LORA_MAX_SEQUENCES) return;
    uint32_t tiles = (state->lengths[row->sequence] + TILE - 1) / TILE;
    for (uint32_t tile = tiles > most ? tiles - most : 0; tile < tiles && tile < list->max_tiles;
         tile++)
        reads_page(reader, layer, page_of(reader, row->sequence, tile));
    int32_t slot = row->slot;
    for (uint32_t depth = 0; slot >= 0 && slot < LORA_MAX_SCRATCH && depth < LORA_MAX_SCRATCH;
         depth++, slot = state->slots[slot].parent)
        reads_page(reader, layer, (uint32_t)slot / TILE);
}

static void reads_attention(struct reader *reader, const struct lora_attention *attention) {
    if (attention->slope_kind != LORA_SLOPE_NONE)
        reads(reader, attention->slope_bank, (uint64_t)attention->slope_line * LINE,
              (uint64_t)attention->q_heads * sizeof(struct lora_head_slope));
    for (uint32_t i = 0; i < rows_of(reader->call); i++)
        reads_row_kv(reader, attention->kv_layer, row_at(reader->call, i), UINT32_MAX);
}

/* The table, and of each row's text the page at its end and the full one before that. */
static void reads_recurrence(struct reader *reader, const struct lora_recurrence *c) {
    reads(reader, c->table_bank, (uint64_t)c->table_line * LINE,
          recurrence_table(reader->call->list, c).bytes);
    for (uint32_t i = 0; i < rows_of(reader->call); i++)
        for (uint32_t plane = 0; plane < c->planes; plane++)
            reads_row_kv(reader, (uint32_t)c->kv_layer + plane, row_at(reader->call, i), 2);
}

static void reads_slot_kv(struct reader *reader, const struct lora_kv_commit *commit,
                          uint32_t slot) {
    uint32_t layers;
    if (!kv_commit_layers(reader->call->list, commit, &layers)) return;
    for (uint32_t i = 0; i < layers; i++) reads_page(reader, commit->kv_layer + i, slot / TILE);
}

static void reads_commits(struct reader *reader, const struct lora_kv_commit *commit) {
    const struct lora_step_state *state = reader->call->state;
    const struct emu_memory *memory = &reader->board->memory;
    uint32_t bank = reader->call->list->control_bank;
    uint64_t bytes = (uint64_t)state->kv_op_count * sizeof(struct lora_kv_op);
    const uint8_t *ops = emu_memory_at(memory, bank, state->kv_ops_offset, bytes);
    const uint8_t *path = emu_memory_at(memory, bank, state->path_offset, 2ull * state->path_count);
    reads(reader, bank, state->kv_ops_offset, bytes);
    reads(reader, bank, state->path_offset, 2ull * state->path_count);
    for (uint32_t i = 0; ops && i < state->kv_op_count; i++) {
        struct lora_kv_op op;
        memcpy(&op, ops + i * sizeof op, sizeof op);
        if (op.kind == LORA_KV_COPY) reads_slot_kv(reader, commit, op.a * TILE);
        for (uint32_t at = 0; path && op.kind == LORA_KV_COMMIT && at < op.c; at++) {
            const uint8_t *slot = path + 2ull * (op.b + at);
            if ((uint64_t)op.b + at < state->path_count)
                reads_slot_kv(reader, commit, (uint32_t)slot[0] | (uint32_t)slot[1] << 8);
        }
    }
}

static void reads_move(struct reader *reader, const struct lora_move_rows *move) {
    const struct lora_step_state *state = reader->call->state;
    bool selected = move->flags & (LORA_FLAG_PACK | LORA_FLAG_SELECTED);
    uint32_t rows = selected ? state->selected_count : state->row_count;
    if (move->flags & LORA_FLAG_VOTES) rows = state->row_count != 0;
    for (uint32_t i = 0; i < rows && i < LORA_MAX_ROWS; i++) {
        uint32_t row = move->flags & LORA_FLAG_PACK ? state->selected[i] : i;
        reads(reader, move->x_bank, move->x_offset + (uint64_t)row * move->x_stride, move->bytes);
    }
}

/* Rows of results that a command writes into a bank. */
static void writes_rows(struct reader *reader, uint32_t bank, uint32_t offset, uint32_t stride,
                        uint64_t bytes) {
    for (uint32_t i = 0; bank != LORA_BANK_ONCHIP && i < rows_of(reader->call); i++)
        emu_ecc_written(reader->board, bank, offset + (uint64_t)i * stride, bytes);
}

static void writes_results(struct reader *reader) {
    const void *record = reader->call->command;
    const struct lora_matrix *matrix = record;
    const struct lora_move_rows *move = record;
    if (reader->call->command->opcode == LORA_CMD_MATRIX)
        writes_rows(reader, matrix->y_bank, matrix->y_offset, matrix->y_stride,
                    (uint64_t)matrix->n * (matrix->y_type == LORA_FP32 ? 4 : 2));
    if (reader->call->command->opcode == LORA_CMD_MOVE_ROWS)
        writes_rows(reader, move->y_bank, move->y_offset, move->y_stride, move->bytes);
}

bool emu_ecc_command(struct emu_board *board, const struct lora_unit_call *call) {
    struct reader reader = {board, call, false};
    const void *record = call->command;
    const struct lora_checksum *sum = record;
    switch (call->command->opcode) {
    case LORA_CMD_MATRIX:
        reads_matrix(&reader, record);
        if (((const struct lora_matrix *)record)->adapter) reads_adapters(&reader);
        break;
    case LORA_CMD_ADAPTER: reads_adapters(&reader); break;
    case LORA_CMD_EXPERTS: reads_experts(&reader, record); break;
    case LORA_CMD_VECTOR: reads_vector(&reader, record); break;
    case LORA_CMD_ATTENTION: reads_attention(&reader, record); break;
    case LORA_CMD_RECURRENCE: reads_recurrence(&reader, record); break;
    case LORA_CMD_KV_COMMIT: reads_commits(&reader, record); break;
    case LORA_CMD_MOVE_ROWS: reads_move(&reader, record); break;
    case LORA_CMD_CHECKSUM:
        reads(&reader, sum->bank, (uint64_t)sum->offset_hi << 32 | sum->offset_lo, sum->bytes);
        break;
    default: break;
    }
    if (!reader.wrong) writes_results(&reader);
    return reader.wrong;
}

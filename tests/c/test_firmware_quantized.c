/* Registration of lists with INT8 and 4-bit weights, INT8 caches and quantizing operations: what is
 * taken, and that each bound is the one of abi.h and not a byte more. */
#include "fw_list.h"

struct quantized {
    const char *what;
    void (*change)(struct test_list *list);
    uint32_t code;
    uint32_t index; /* ~0: the header, or nothing */
};
#define NOTHING 0xffffffffu
#define LINES 4096 /* of a bank */

#define CHANGE(name, statement)                                                                    \
    static void name(struct test_list *list) {                                                     \
        struct lora_list *h = &list->header;                                                       \
        union record *c = list->commands;                                                          \
        struct lora_matrix *m = &c[MATRIX_AT].matrix;                                              \
        struct lora_vector *v = &c[ROPE_AT].vector;                                                \
        struct lora_kv_store *s = &c[KV_STORE_AT].kv_store;                                        \
        struct lora_attention *a = &c[ATTENTION_AT].attention;                                     \
        (void)h, (void)c, (void)m, (void)v, (void)s, (void)a;                                      \
        statement;                                                                                 \
    }

/* --- weights; x has rows of 64 values at a stride of 128 bytes, in 65536; n is 96 ------------- */
static void weights(struct lora_matrix *m, uint32_t type) { m->weight_type = (uint8_t)type; }

static void long_rows(struct lora_matrix *m, uint32_t type) {
    weights(m, type);
    m->k = 128, m->x_stride = 256;
}

CHANGE(int8, weights(m, 3))
CHANGE(int8_no_bias, (weights(m, 3), m->flags |= LORA_FLAG_NO_BIAS))
CHANGE(int8_group, weights(m, 0x73))
CHANGE(fp16_group, weights(m, 0x51))
CHANGE(type_two, weights(m, 2))
CHANGE(type_seven, weights(m, 0x77))
CHANGE(gguf_zero, weights(m, 0x06))
CHANGE(gguf_twelve, weights(m, 0xc6))
CHANGE(no_group, weights(m, 4))
CHANGE(group_16, weights(m, 0x44))
CHANGE(group_256, weights(m, 0x85))
CHANGE(w4a8_32, weights(m, 0x54))
CHANGE(w4a8_64, weights(m, 0x64))
CHANGE(w4a8_128, long_rows(m, 0x74))
CHANGE(w4a16_128, long_rows(m, 0x75))
CHANGE(fp16_no_bias, m->flags |= LORA_FLAG_NO_BIAS)
CHANGE(w4a16_no_bias, (weights(m, 0x65), m->flags |= LORA_FLAG_NO_BIAS))
CHANGE(w4a16_bias_absent, (weights(m, 0x65), m->bias_bank = LORA_NO_BANK))
CHANGE(scales_absent, (weights(m, 3), m->bias_bank = LORA_NO_BANK))
CHANGE(int8_long, (weights(m, 3), m->k = LORA_MAX_INT8_K + 1))
CHANGE(w4a8_ragged, (weights(m, 0x54), m->k = 63))
CHANGE(w4a16_ragged, (weights(m, 0x75), m->k = 64))
CHANGE(no_bias_on_vector, v->flags |= LORA_FLAG_NO_BIAS)
/* 384 B of scales and 192 of bias: 9 lines; with n = 90, 360 B of scales in 6 lines and 180. */
CHANGE(scales_last, (weights(m, 3), m->bias_line = LINES - 9))
CHANGE(scales_beyond, (weights(m, 3), m->bias_line = LINES - 8))
CHANGE(scales_padded, (weights(m, 3), m->n = 90, m->bias_line = LINES - 8))
CHANGE(scales_alone, (weights(m, 0x64), m->flags |= LORA_FLAG_NO_BIAS, m->bias_line = LINES - 6))
CHANGE(scales_alone_beyond,
       (weights(m, 0x64), m->flags |= LORA_FLAG_NO_BIAS, m->bias_line = LINES - 5))
/* INT8 rows of 64 bytes may end with the buffer and begin anywhere; FP16 rows may not. */
CHANGE(x_last, (weights(m, 3), m->x_stride = 64, m->x_offset = ONCHIP_BYTES - 40 * 64))
CHANGE(x_odd, (weights(m, 0x54), m->x_stride = 65, m->x_offset = 1))
CHANGE(x_beyond, (weights(m, 3), m->x_stride = 64, m->x_offset = ONCHIP_BYTES - 40 * 64 + 1))
CHANGE(x_overlaps, (weights(m, 3), m->x_stride = 63))
/* A line behind 64 INT8 values: rows of 128 bytes, at whole words. */
static void row_scales(struct lora_matrix *m, uint32_t type) {
    weights(m, type);
    m->flags |= LORA_FLAG_ROW_SCALES;
    m->x_stride = 128;
}

CHANGE(x_scaled, row_scales(m, 3))
CHANGE(x_scaled_w4a8, row_scales(m, 0x64))
CHANGE(x_scaled_fp16, row_scales(m, 1))
CHANGE(x_scaled_w4a16, row_scales(m, 0x65))
CHANGE(x_scaled_overlaps, (row_scales(m, 3), m->x_stride = 124))
CHANGE(x_scaled_odd, (row_scales(m, 3), m->x_offset = 2))
CHANGE(x_scaled_last, (row_scales(m, 3), m->x_offset = ONCHIP_BYTES - 40 * 128))
CHANGE(x_scaled_beyond, (row_scales(m, 3), m->x_offset = ONCHIP_BYTES - 40 * 128 + 4))
CHANGE(x_scaled_ragged, (row_scales(m, 3), m->k = 63, m->x_stride = 124))
CHANGE(row_scales_on_vector, v->flags |= LORA_FLAG_ROW_SCALES)
CHANGE(x_of_w4a16, (weights(m, 0x65), m->x_stride = 126))

/* --- vector operations, in ROPE's place: 64 columns, heads of 16, on-chip rows of 192 bytes --- */
static void vector(struct lora_vector *v, uint32_t op) {
    v->op = (uint8_t)op;
    v->y_bank = LORA_BANK_ONCHIP;
    v->y_offset = 20000, v->y_stride = 64;
    v->z_offset = 40000, v->z_stride = 8;
}

CHANGE(quantize, vector(v, LORA_VEC_QUANTIZE))
CHANGE(quantize_odd, (vector(v, LORA_VEC_QUANTIZE), v->y_offset = 20001, v->y_stride = 65))
CHANGE(quantize_overlap, (vector(v, LORA_VEC_QUANTIZE), v->y_stride = 63))
CHANGE(quantize_last, (vector(v, LORA_VEC_QUANTIZE), v->y_offset = ONCHIP_BYTES - 40 * 64))
CHANGE(quantize_beyond, (vector(v, LORA_VEC_QUANTIZE), v->y_offset = ONCHIP_BYTES - 40 * 64 + 1))
CHANGE(quantize_from_beyond, (vector(v, LORA_VEC_QUANTIZE), v->x_offset = ONCHIP_BYTES))
CHANGE(heads, vector(v, LORA_VEC_QUANTIZE_HEADS))
CHANGE(heads_of_none, (vector(v, LORA_VEC_QUANTIZE_HEADS), v->extra = 0))
CHANGE(heads_of_eight, (vector(v, LORA_VEC_QUANTIZE_HEADS), v->extra = 8))
CHANGE(heads_cut, (vector(v, LORA_VEC_QUANTIZE_HEADS), v->columns = 56))
CHANGE(heads_z_overlap, (vector(v, LORA_VEC_QUANTIZE_HEADS), v->z_stride = 6))
CHANGE(heads_z_odd, (vector(v, LORA_VEC_QUANTIZE_HEADS), v->z_offset = 40001))
CHANGE(heads_z_beyond,
       (vector(v, LORA_VEC_QUANTIZE_HEADS), v->z_offset = ONCHIP_BYTES - 40 * 8 + 2))

static void permute(struct lora_vector *v, uint32_t element) {
    vector(v, LORA_VEC_PERMUTE);
    v->extra = element;
    v->y_stride = 64 * element;
    v->a_bank = 1;
    v->a_line = LINES - 4; /* 64 indices */
}

CHANGE(permute_int8, permute(v, 1))
CHANGE(permute_fp16, permute(v, 2))
CHANGE(permute_four, permute(v, 4))
CHANGE(permute_none, permute(v, 0))
CHANGE(permute_table, (permute(v, 1), v->a_line = LINES - 3))
CHANGE(permute_no_table, (permute(v, 1), v->a_bank = LORA_NO_BANK))
CHANGE(permute_overlap, (permute(v, 2), v->y_stride = 126))
CHANGE(permute_odd, (permute(v, 2), v->y_offset = 20001))
CHANGE(permute_beyond, (permute(v, 2), v->y_offset = ONCHIP_BYTES - 40 * 128 + 2))
static void row_scaled(struct lora_vector *v, uint8_t op) { /* 64 columns, the scales at 40000 */
    vector(v, op);
    v->z_stride = 64;
    v->extra = 8;
}

CHANGE(row_max, row_scaled(v, LORA_VEC_ROW_MAX))
CHANGE(row_max_of_none, (row_scaled(v, LORA_VEC_ROW_MAX), v->columns = 0))
CHANGE(row_max_last, (row_scaled(v, LORA_VEC_ROW_MAX), v->first = 7))
CHANGE(row_max_first, (row_scaled(v, LORA_VEC_ROW_MAX), v->first = 8))
CHANGE(row_max_overlap, (row_scaled(v, LORA_VEC_ROW_MAX), v->z_stride = 60))
CHANGE(row_max_odd, (row_scaled(v, LORA_VEC_ROW_MAX), v->z_offset = 40002))
CHANGE(row_max_beyond, (row_scaled(v, LORA_VEC_ROW_MAX), v->z_offset = ONCHIP_BYTES - 64))
CHANGE(quantize_row, row_scaled(v, LORA_VEC_QUANTIZE_ROW))
CHANGE(quantize_row_none, (row_scaled(v, LORA_VEC_QUANTIZE_ROW), v->extra = 0))
CHANGE(quantize_row_nine, (row_scaled(v, LORA_VEC_QUANTIZE_ROW), v->extra = 9))
CHANGE(quantize_row_y, (row_scaled(v, LORA_VEC_QUANTIZE_ROW), v->y_stride = 63))
CHANGE(quantize_row_x, (row_scaled(v, LORA_VEC_QUANTIZE_ROW), v->x_offset = ONCHIP_BYTES))

/* 4 heads of 16 columns: 4 of z, in turns of 2, and 10 of 12 of x. */
static void join(struct lora_vector *v) {
    vector(v, LORA_VEC_JOIN_HEADS);
    v->y_stride = 128;
    v->extra = 16;
    v->first = 12, v->scalar = 10;
    v->a_line = 4, v->b_line = 2;
    v->z_stride = 16;
}

CHANGE(join_heads, join(v))
CHANGE(join_no_shared, (join(v), v->a_line = v->b_line = 0, v->z_offset = ONCHIP_BYTES))
CHANGE(join_none, (join(v), v->extra = 0))
CHANGE(join_cut, (join(v), v->columns = 56))
CHANGE(join_full, (join(v), v->scalar = 12))
CHANGE(join_over, (join(v), v->a_line = 7))
CHANGE(join_wide, (join(v), v->a_line = 0xffffffff))
CHANGE(join_more_than_x, (join(v), v->first = 9))
CHANGE(join_no_turns, (join(v), v->b_line = 0))
CHANGE(join_many_turns, (join(v), v->b_line = 0x40000001))
CHANGE(join_far, (join(v), v->first = 0x40000001))
CHANGE(join_x_overlaps, (join(v), v->x_stride = 94))
CHANGE(join_y_overlaps, (join(v), v->y_stride = 126))
CHANGE(join_z_overlaps, (join(v), v->z_stride = 14))
CHANGE(join_y_beyond, (join(v), v->y_offset = ONCHIP_BYTES - 40 * 128 + 2))
CHANGE(join_z_beyond, (join(v), v->z_offset = ONCHIP_BYTES - 40 * 16 + 2))
CHANGE(join_y_off_chip, (join(v), v->y_bank = 1))

/* 64 experts, 4 chosen. */
static void route(struct lora_vector *v, uint32_t op, uint32_t groups, uint32_t taken) {
    vector(v, op);
    v->x_stride = 256, v->y_stride = 32;
    v->extra = 4;
    v->b_line = groups | taken << 16;
    v->scalar = 0x40000000;
    v->a_bank = 1;
    v->a_line = LINES - 4;
}

CHANGE(route_groups, route(v, LORA_VEC_ROUTE, 16, 1))
CHANGE(route_plain, (route(v, LORA_VEC_ROUTE_CHOSEN, 0, 0), v->scalar = 0))
CHANGE(route_singles, route(v, LORA_VEC_ROUTE, 64, 4))
CHANGE(route_uneven, route(v, LORA_VEC_ROUTE, 5, 4))
CHANGE(route_few, route(v, LORA_VEC_ROUTE, 32, 1))
CHANGE(route_many, route(v, LORA_VEC_ROUTE, 4, 5))
CHANGE(route_no_group, route(v, LORA_VEC_ROUTE, 0, 1))
CHANGE(route_infinite, (route(v, LORA_VEC_ROUTE, 4, 1), v->scalar = 0x7f800000))
CHANGE(route_negative, (route(v, LORA_VEC_ROUTE, 4, 1), v->scalar = 0xbf800000))
CHANGE(sigmoid_groups, route(v, LORA_VEC_ROUTE_SIGMOID, 16, 2))
CHANGE(sigmoid_no_groups, route(v, LORA_VEC_ROUTE_SIGMOID, 0, 0))
CHANGE(sigmoid_singles, route(v, LORA_VEC_ROUTE_SIGMOID, 64, 4))
CHANGE(sigmoid_no_factor, (route(v, LORA_VEC_ROUTE_SIGMOID, 16, 2), v->scalar = 0))
CHANGE(sigmoid_least, (route(v, LORA_VEC_ROUTE_SIGMOID, 16, 2), v->first = 3))

CHANGE(vector_unknown, vector(v, LORA_VEC_JOIN_HEADS + 1))

/* Norms of heads: gamma of 16 columns, one line; 4 heads of which 2 are here. */
static void head_norm(struct lora_vector *v, uint32_t op) {
    vector(v, op);
    v->y_stride = 128;
    v->columns = 32;
    v->extra = op == LORA_VEC_RMS_HEADS ? 16 : 64;
    v->first = op == LORA_VEC_RMS_HEADS ? 0 : 32;
    v->z_stride = 16;
    v->a_bank = 1;
    v->a_line = LINES - 1;
}

CHANGE(rms_heads, head_norm(v, LORA_VEC_RMS_HEADS))
CHANGE(rms_heads_eight, (head_norm(v, LORA_VEC_RMS_HEADS), v->extra = 8))
CHANGE(rms_heads_cut, (head_norm(v, LORA_VEC_RMS_HEADS), v->columns = 24))
CHANGE(rms_heads_no_gamma, (head_norm(v, LORA_VEC_RMS_HEADS), v->a_bank = LORA_NO_BANK))
CHANGE(rms_heads_gamma, (head_norm(v, LORA_VEC_RMS_HEADS), v->a_line = LINES))
CHANGE(head_sums, (head_norm(v, LORA_VEC_HEAD_SUMS), v->z_offset = ONCHIP_BYTES - 40 * 16))
CHANGE(head_sums_beyond,
       (head_norm(v, LORA_VEC_HEAD_SUMS), v->z_offset = ONCHIP_BYTES - 40 * 16 + 4))
CHANGE(head_sums_overlap, (head_norm(v, LORA_VEC_HEAD_SUMS), v->z_stride = 12))
CHANGE(head_sums_past, (head_norm(v, LORA_VEC_HEAD_SUMS), v->first = 48))
CHANGE(head_sums_cut, (head_norm(v, LORA_VEC_HEAD_SUMS), v->columns = 24))
CHANGE(head_sums_shifted, (head_norm(v, LORA_VEC_HEAD_SUMS), v->first = 8))
CHANGE(head_sums_none, (head_norm(v, LORA_VEC_HEAD_SUMS), v->extra = 0))
CHANGE(head_sums_ragged, (head_norm(v, LORA_VEC_HEAD_SUMS), v->extra = 72))
CHANGE(rms_row, head_norm(v, LORA_VEC_RMS_ROW))
CHANGE(rms_row_no_gamma, (head_norm(v, LORA_VEC_RMS_ROW), v->a_bank = LORA_NO_BANK))
CHANGE(rms_row_gamma, (head_norm(v, LORA_VEC_RMS_ROW), v->columns = 32, v->a_line = LINES))
CHANGE(rms_row_sums, (head_norm(v, LORA_VEC_RMS_ROW), v->z_offset = ONCHIP_BYTES - 8))
CHANGE(scaled_residual, (vector(v, LORA_VEC_RESIDUAL_SCALED), v->y_stride = v->z_stride = 128))
CHANGE(scaled_residual_z, (vector(v, LORA_VEC_RESIDUAL_SCALED), v->y_stride = 128,
                           v->z_offset = ONCHIP_BYTES - 126, v->z_stride = 128))

static void floats(struct lora_vector *v) {
    vector(v, LORA_VEC_SCALE);
    v->y_stride = 256;
}

CHANGE(one_plus, (head_norm(v, LORA_VEC_RMS_HEADS), v->flags |= LORA_FLAG_ONE_PLUS))
CHANGE(one_plus_row, (head_norm(v, LORA_VEC_RMS_ROW), v->flags |= LORA_FLAG_ONE_PLUS))
CHANGE(one_plus_sums, (head_norm(v, LORA_VEC_HEAD_SUMS), v->flags |= LORA_FLAG_ONE_PLUS))
CHANGE(one_plus_activation,
       (vector(v, LORA_VEC_GEGLU), v->y_stride = v->z_stride = 128, v->flags |= LORA_FLAG_ONE_PLUS))
CHANGE(geglu, (vector(v, LORA_VEC_GEGLU), v->y_stride = v->z_stride = 128))
CHANGE(geglu_z, (vector(v, LORA_VEC_GEGLU), v->y_stride = 128, v->z_offset = ONCHIP_BYTES - 126,
                 v->z_stride = 128))
CHANGE(soft_cap, (floats(v), v->op = LORA_VEC_SOFTCAP))
CHANGE(soft_cap_beyond,
       (floats(v), v->op = LORA_VEC_SOFTCAP, v->y_offset = ONCHIP_BYTES - 40 * 256 + 4))

CHANGE(floats_last, (floats(v), v->y_offset = ONCHIP_BYTES - 40 * 256))
CHANGE(floats_beyond, (floats(v), v->y_offset = ONCHIP_BYTES - 40 * 256 + 4))
CHANGE(floats_overlap, (floats(v), v->y_stride = 252))

/* --- caches: 2 KV heads of 16 columns --------------------------------------------------------- */
CHANGE(kv_int8, h->kv_type = LORA_KV_INT8)
CHANGE(kv_heads, (h->kv_type = LORA_KV_INT8_HEADS, s->scale_stride = 4))
CHANGE(kv_unknown, h->kv_type = LORA_KV_INT8_HEADS + 1)
CHANGE(kv_odd, (h->kv_type = LORA_KV_INT8, h->head_dim = 15))
CHANGE(kv_long, (h->kv_type = LORA_KV_INT8, h->max_tiles = 4161))
CHANGE(q_odd, (h->kv_type = LORA_KV_INT8, a->q_offset += 1, a->q_stride = 33))
CHANGE(q_overlap, (h->kv_type = LORA_KV_INT8, a->q_stride = 31))
CHANGE(q_heads_odd, (h->kv_type = LORA_KV_INT8_HEADS, s->scale_stride = 4, a->q_offset += 1))
CHANGE(y_odd, (h->kv_type = LORA_KV_INT8, a->y_offset += 1))
CHANGE(store_last, (h->kv_type = LORA_KV_INT8, s->stride = 32,
                    s->k_offset = s->v_offset = ONCHIP_BYTES - 40 * 32))
CHANGE(store_k_beyond,
       (h->kv_type = LORA_KV_INT8, s->stride = 32, s->k_offset = ONCHIP_BYTES - 40 * 32 + 1))
CHANGE(store_v_beyond,
       (h->kv_type = LORA_KV_INT8, s->stride = 32, s->v_offset = ONCHIP_BYTES - 40 * 32 + 1))
CHANGE(store_overlap, (h->kv_type = LORA_KV_INT8, s->stride = 31))
CHANGE(scales_of_k, (kv_heads(list), s->k_scales = ONCHIP_BYTES - 40 * 4 + 2))
CHANGE(scales_of_v, (kv_heads(list), s->v_scales = ONCHIP_BYTES - 40 * 4 + 2))
CHANGE(scales_end, (kv_heads(list), s->k_scales = s->v_scales = ONCHIP_BYTES - 40 * 4))
CHANGE(scales_odd, (kv_heads(list), s->v_scales = 1))
CHANGE(scales_overlap, (kv_heads(list), s->scale_stride = 2))
CHANGE(gather_int8, (c[GATHER_AT].gather.element_bytes = 1, c[GATHER_AT].gather.offset = 1,
                     c[GATHER_AT].gather.stride = 65))
CHANGE(gather_int8_beyond, (c[GATHER_AT].gather.element_bytes = 1,
                            c[GATHER_AT].gather.offset = ONCHIP_BYTES - 39 * 128 - 63))

static const struct quantized changes[] = {
    {"INT8", int8, LORA_OK, NOTHING},
    {"INT8 without bias", int8_no_bias, LORA_OK, NOTHING},
    {"INT8 in groups", int8_group, LORA_ERR_OPCODE, MATRIX_AT},
    {"FP16 in groups", fp16_group, LORA_ERR_OPCODE, MATRIX_AT},
    {"weight type 2", type_two, LORA_ERR_OPCODE, MATRIX_AT},
    {"weight type 7", type_seven, LORA_ERR_OPCODE, MATRIX_AT},
    {"GGUF block 0", gguf_zero, LORA_ERR_OPCODE, MATRIX_AT},
    {"GGUF block 12", gguf_twelve, LORA_ERR_OPCODE, MATRIX_AT},
    {"W4A8 without group", no_group, LORA_ERR_OPCODE, MATRIX_AT},
    {"groups of 16", group_16, LORA_ERR_OPCODE, MATRIX_AT},
    {"groups of 256", group_256, LORA_ERR_OPCODE, MATRIX_AT},
    {"W4A8, 32", w4a8_32, LORA_OK, NOTHING},
    {"W4A8, 64", w4a8_64, LORA_OK, NOTHING},
    {"W4A8, 128", w4a8_128, LORA_OK, NOTHING},
    {"W4A16", w4a16_128, LORA_OK, NOTHING},
    {"FP16, NO_BIAS", fp16_no_bias, LORA_ERR_OPCODE, MATRIX_AT},
    {"W4A16, NO_BIAS", w4a16_no_bias, LORA_ERR_OPCODE, MATRIX_AT},
    {"W4A16 without bias", w4a16_bias_absent, LORA_OK, NOTHING},
    {"INT8 without scales", scales_absent, LORA_ERR_ADDRESS, MATRIX_AT},
    {"INT8 sums beyond INT32", int8_long, LORA_ERR_SIZE, MATRIX_AT},
    {"half a group of 32", w4a8_ragged, LORA_ERR_SIZE, MATRIX_AT},
    {"half a group of 128", w4a16_ragged, LORA_ERR_SIZE, MATRIX_AT},
    {"NO_BIAS on a vector", no_bias_on_vector, LORA_ERR_OPCODE, ROPE_AT},
    {"scales and bias to the end", scales_last, LORA_OK, NOTHING},
    {"scales and bias beyond", scales_beyond, LORA_ERR_ADDRESS, MATRIX_AT},
    {"padded scales and bias beyond", scales_padded, LORA_ERR_ADDRESS, MATRIX_AT},
    {"scales to the end", scales_alone, LORA_OK, NOTHING},
    {"scales beyond", scales_alone_beyond, LORA_ERR_ADDRESS, MATRIX_AT},
    {"INT8 x to the end", x_last, LORA_OK, NOTHING},
    {"INT8 x anywhere", x_odd, LORA_OK, NOTHING},
    {"INT8 x beyond", x_beyond, LORA_ERR_ADDRESS, MATRIX_AT},
    {"INT8 x overlaps", x_overlaps, LORA_ERR_ADDRESS, MATRIX_AT},
    {"W4A16's x is FP16", x_of_w4a16, LORA_ERR_ADDRESS, MATRIX_AT},
    {"INT8 rows with scales", x_scaled, LORA_OK, NOTHING},
    {"W4A8 rows with scales", x_scaled_w4a8, LORA_OK, NOTHING},
    {"FP16 rows with scales", x_scaled_fp16, LORA_ERR_OPCODE, MATRIX_AT},
    {"W4A16 rows with scales", x_scaled_w4a16, LORA_ERR_OPCODE, MATRIX_AT},
    {"rows with scales overlap", x_scaled_overlaps, LORA_ERR_ADDRESS, MATRIX_AT},
    {"rows with scales at half a word", x_scaled_odd, LORA_ERR_ADDRESS, MATRIX_AT},
    {"rows with scales to the end", x_scaled_last, LORA_OK, NOTHING},
    {"rows with scales beyond", x_scaled_beyond, LORA_ERR_ADDRESS, MATRIX_AT},
    {"scales behind a whole line", x_scaled_ragged, LORA_ERR_ADDRESS, MATRIX_AT},
    {"ROW_SCALES on a vector", row_scales_on_vector, LORA_ERR_OPCODE, ROPE_AT},
    {"ROW_MAX", row_max, LORA_OK, NOTHING},
    {"ROW_MAX of no columns", row_max_of_none, LORA_OK, NOTHING},
    {"ROW_MAX, the last", row_max_last, LORA_OK, NOTHING},
    {"ROW_MAX past the maxima", row_max_first, LORA_ERR_SIZE, ROPE_AT},
    {"ROW_MAX overlaps", row_max_overlap, LORA_ERR_ADDRESS, ROPE_AT},
    {"ROW_MAX at half a word", row_max_odd, LORA_ERR_ADDRESS, ROPE_AT},
    {"ROW_MAX beyond", row_max_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"QUANTIZE_ROW", quantize_row, LORA_OK, NOTHING},
    {"QUANTIZE_ROW of no maxima", quantize_row_none, LORA_ERR_SIZE, ROPE_AT},
    {"QUANTIZE_ROW of nine maxima", quantize_row_nine, LORA_ERR_SIZE, ROPE_AT},
    {"QUANTIZE_ROW overlaps", quantize_row_y, LORA_ERR_ADDRESS, ROPE_AT},
    {"QUANTIZE_ROW from beyond", quantize_row_x, LORA_ERR_ADDRESS, ROPE_AT},
    {"QUANTIZE", quantize, LORA_OK, NOTHING},
    {"QUANTIZE anywhere", quantize_odd, LORA_OK, NOTHING},
    {"QUANTIZE overlaps", quantize_overlap, LORA_ERR_ADDRESS, ROPE_AT},
    {"QUANTIZE to the end", quantize_last, LORA_OK, NOTHING},
    {"QUANTIZE beyond", quantize_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"QUANTIZE from beyond", quantize_from_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"QUANTIZE_HEADS", heads, LORA_OK, NOTHING},
    {"heads of 0 columns", heads_of_none, LORA_ERR_SIZE, ROPE_AT},
    {"heads of 8 columns", heads_of_eight, LORA_ERR_SIZE, ROPE_AT},
    {"half a head", heads_cut, LORA_ERR_SIZE, ROPE_AT},
    {"scales overlap", heads_z_overlap, LORA_ERR_ADDRESS, ROPE_AT},
    {"scales at an odd byte", heads_z_odd, LORA_ERR_ADDRESS, ROPE_AT},
    {"scales beyond", heads_z_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"PERMUTE of bytes", permute_int8, LORA_OK, NOTHING},
    {"PERMUTE of halves", permute_fp16, LORA_OK, NOTHING},
    {"PERMUTE of words", permute_four, LORA_ERR_SIZE, ROPE_AT},
    {"PERMUTE of nothing", permute_none, LORA_ERR_SIZE, ROPE_AT},
    {"PERMUTE's table beyond", permute_table, LORA_ERR_ADDRESS, ROPE_AT},
    {"PERMUTE without table", permute_no_table, LORA_ERR_ADDRESS, ROPE_AT},
    {"PERMUTE overlaps", permute_overlap, LORA_ERR_ADDRESS, ROPE_AT},
    {"PERMUTE at an odd byte", permute_odd, LORA_ERR_ADDRESS, ROPE_AT},
    {"PERMUTE beyond", permute_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"JOIN_HEADS", join_heads, LORA_OK, NOTHING},
    {"JOIN_HEADS of x alone", join_no_shared, LORA_OK, NOTHING},
    {"JOIN_HEADS of no columns", join_none, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS cuts a head", join_cut, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS fills a head", join_full, LORA_OK, NOTHING},
    {"JOIN_HEADS past a head", join_over, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS far past a head", join_wide, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS of more than x has", join_more_than_x, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS in no turns", join_no_turns, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS in too many turns", join_many_turns, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS of heads too far apart", join_far, LORA_ERR_SIZE, ROPE_AT},
    {"JOIN_HEADS' x overlaps", join_x_overlaps, LORA_ERR_ADDRESS, ROPE_AT},
    {"JOIN_HEADS' y overlaps", join_y_overlaps, LORA_ERR_ADDRESS, ROPE_AT},
    {"JOIN_HEADS' z overlaps", join_z_overlaps, LORA_ERR_ADDRESS, ROPE_AT},
    {"JOIN_HEADS' y beyond", join_y_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"JOIN_HEADS' z beyond", join_z_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"JOIN_HEADS' y is on-chip, whatever its bank", join_y_off_chip, LORA_OK, NOTHING},
    {"ROUTE in groups", route_groups, LORA_OK, NOTHING},
    {"ROUTE_CHOSEN without groups", route_plain, LORA_OK, NOTHING},
    {"ROUTE in groups of one", route_singles, LORA_OK, NOTHING},
    {"ROUTE in uneven groups", route_uneven, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE in too few groups", route_few, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE in more groups than there are", route_many, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE in a group of none", route_no_group, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE's factor infinite", route_infinite, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE's factor negative", route_negative, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE_SIGMOID in groups", sigmoid_groups, LORA_OK, NOTHING},
    {"ROUTE_SIGMOID without groups", sigmoid_no_groups, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE_SIGMOID in groups of one", sigmoid_singles, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE_SIGMOID without a factor", sigmoid_no_factor, LORA_ERR_SIZE, ROPE_AT},
    {"ROUTE_SIGMOID's fourth constant", sigmoid_least, LORA_ERR_SIZE, ROPE_AT},
    {"unknown vector operation", vector_unknown, LORA_ERR_OPCODE, ROPE_AT},
    {"RMS_HEADS", rms_heads, LORA_OK, NOTHING},
    {"RMS_HEADS of 8 columns", rms_heads_eight, LORA_ERR_SIZE, ROPE_AT},
    {"RMS_HEADS of half a head", rms_heads_cut, LORA_ERR_SIZE, ROPE_AT},
    {"RMS_HEADS without gamma", rms_heads_no_gamma, LORA_ERR_ADDRESS, ROPE_AT},
    {"RMS_HEADS' gamma beyond", rms_heads_gamma, LORA_ERR_ADDRESS, ROPE_AT},
    {"HEAD_SUMS", head_sums, LORA_OK, NOTHING},
    {"HEAD_SUMS beyond", head_sums_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"HEAD_SUMS overlap", head_sums_overlap, LORA_ERR_ADDRESS, ROPE_AT},
    {"HEAD_SUMS past the row", head_sums_past, LORA_ERR_SIZE, ROPE_AT},
    {"HEAD_SUMS of half a head", head_sums_cut, LORA_ERR_SIZE, ROPE_AT},
    {"HEAD_SUMS between heads", head_sums_shifted, LORA_ERR_SIZE, ROPE_AT},
    {"HEAD_SUMS of no row", head_sums_none, LORA_ERR_SIZE, ROPE_AT},
    {"HEAD_SUMS of a ragged row", head_sums_ragged, LORA_ERR_SIZE, ROPE_AT},
    {"RMS_ROW", rms_row, LORA_OK, NOTHING},
    {"RMS_ROW without gamma", rms_row_no_gamma, LORA_ERR_ADDRESS, ROPE_AT},
    {"RMS_ROW's gamma beyond", rms_row_gamma, LORA_ERR_ADDRESS, ROPE_AT},
    {"RMS_ROW's sums beyond", rms_row_sums, LORA_ERR_ADDRESS, ROPE_AT},
    {"RESIDUAL_SCALED", scaled_residual, LORA_OK, NOTHING},
    {"RESIDUAL_SCALED's z beyond", scaled_residual_z, LORA_ERR_ADDRESS, ROPE_AT},
    {"1 + gamma of RMS_HEADS", one_plus, LORA_OK, NOTHING},
    {"1 + gamma of RMS_ROW", one_plus_row, LORA_OK, NOTHING},
    {"1 + gamma of HEAD_SUMS", one_plus_sums, LORA_ERR_OPCODE, ROPE_AT},
    {"1 + gamma of GEGLU", one_plus_activation, LORA_ERR_OPCODE, ROPE_AT},
    {"GEGLU", geglu, LORA_OK, NOTHING},
    {"GEGLU's z beyond", geglu_z, LORA_ERR_ADDRESS, ROPE_AT},
    {"SOFTCAP", soft_cap, LORA_OK, NOTHING},
    {"SOFTCAP beyond", soft_cap_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"SCALE to the end", floats_last, LORA_OK, NOTHING},
    {"SCALE beyond", floats_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"SCALE overlaps", floats_overlap, LORA_ERR_ADDRESS, ROPE_AT},
    {"INT8 cache", kv_int8, LORA_OK, NOTHING},
    {"INT8 cache, scales a head", kv_heads, LORA_OK, NOTHING},
    {"cache type 3", kv_unknown, LORA_ERR_SIZE, NOTHING},
    {"odd head_dim", kv_odd, LORA_ERR_SIZE, NOTHING},
    {"sums beyond INT32", kv_long, LORA_ERR_SIZE, NOTHING},
    {"INT8 q anywhere", q_odd, LORA_OK, NOTHING},
    {"INT8 q overlaps", q_overlap, LORA_ERR_ADDRESS, ATTENTION_AT},
    {"FP16 q at an odd byte", q_heads_odd, LORA_ERR_ADDRESS, ATTENTION_AT},
    {"attention's y at an odd byte", y_odd, LORA_ERR_ADDRESS, ATTENTION_AT},
    {"INT8 K and V to the end", store_last, LORA_OK, NOTHING},
    {"INT8 K beyond", store_k_beyond, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"INT8 V beyond", store_v_beyond, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"INT8 K overlaps", store_overlap, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"K's scales beyond", scales_of_k, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"V's scales beyond", scales_of_v, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"scales to the end", scales_end, LORA_OK, NOTHING},
    {"scales at an odd byte", scales_odd, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"scales overlap", scales_overlap, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"INT8 gather anywhere", gather_int8, LORA_OK, NOTHING},
    {"INT8 gather beyond", gather_int8_beyond, LORA_ERR_ADDRESS, GATHER_AT},
};

static void test_cases(void) {
    for (uint32_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct test_list list = list_new();
        uint32_t code;
        board_open();
        changes[i].change(&list);
        code = list_register(&list);
        if (code != changes[i].code || (code && error_record().index != changes[i].index)) {
            fprintf(stderr, "%s: status %u at %d, expected %u at %d\n", changes[i].what, code,
                    (int)error_record().index, changes[i].code, (int)changes[i].index);
            exit(1);
        }
        board_close();
    }
}

/* A matrix of one bank whose arena is just large enough, then a line less. */
static void test_block_bytes(void) {
    static const struct {
        uint8_t type;
        uint32_t lines;
    } types[] = {{1, 128},   {3, 64},    {0x54, 37}, {0x55, 37},
                 {0x64, 35}, {0x65, 35}, {0x74, 34}, {0x75, 34}};
    for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (uint32_t less = 0; less < 2; less++) {
            struct test_list list = list_new();
            struct lora_matrix *m = &list.commands[MATRIX_AT].matrix;
            board_open();
            m->weight_type = types[i].type;
            m->bank_count = 1;
            m->first = 0;
            m->k = 384, m->x_stride = 768; /* 3 blocks a tile, 3 tiles */
            m->n = 90;
            list.commands[HEAD_AT].matrix.n = 0;
            list.commands[EMBED_AT].vector.a_bank = CONTROL;
            list.commands[ROPE_AT].vector.a_bank = CONTROL;
            set_arena(0, 0, 128 * 64, (uint64_t)(types[i].lines * 9 - less) * 64);
            CHECK_EQUAL(list_register(&list), less ? LORA_ERR_ADDRESS : LORA_OK);
            if (less) CHECK_EQUAL(error_record().index, MATRIX_AT);
            board_close();
        }
}

/* The same for the pool: 20 pages of 9 blocks and two banks, 90 blocks each. */
static void test_pool_bytes(void) {
    static const uint32_t lines[] = {16, 8, 9};
    for (uint16_t type = LORA_KV_FP16; type <= LORA_KV_INT8_HEADS; type++)
        for (uint32_t less = 0; less < 2; less++) {
            struct test_list list = list_new();
            uint64_t bytes = 90 * 64 * (uint64_t)lines[type];
            board_open();
            list.header.kv_type = type;
            list.commands[KV_STORE_AT].kv_store.scale_stride = 4;
            set_arena(2, 2, KV_LINE * 64, bytes - 64 * less);
            set_arena(3, 3, KV_LINE * 64, bytes);
            CHECK_EQUAL(list_register(&list), less ? LORA_ERR_ADDRESS : LORA_OK);
            board_close();
        }
}

static const struct test_case cases[] = {
    CASE(cases),
    CASE(block_bytes),
    CASE(pool_bytes),
};

int main(int argc, char **argv) { return RUN_CASES(cases, argc, argv); }

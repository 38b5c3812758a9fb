/* REGISTER: operands of vector operations; which of x, y, z and the tables an operation uses. */
#include "fw.h"
#include "lora/segments.h"
#include "lora/weight_blocks.h"

enum operand {
    X_ROW = 0x1,      /* FP16 columns, on-chip */
    Y_ROW = 0x2,      /* FP16 columns */
    Z_ROW = 0x4,      /* FP16 columns, on-chip */
    Z_LN = 0x8,       /* LayerNorm's sums */
    Z_RMS = 0x10,     /* RMSNorm's sums */
    A_COLUMNS = 0x20, /* FP16 columns; may be absent */
    B_COLUMNS = 0x40,
    A_TOKENS = 0x80,     /* a table row a token */
    B_POSITIONS = 0x100, /* a table row a position; may be absent */
    A_ANGLES = 0x200,
    X_LOGITS = 0x400,   /* FP32 columns, with Y the argmax record */
    Y_INT8 = 0x800,     /* INT8 columns */
    Z_HEADS = 0x1000,   /* FP16, one a head of `extra` columns, on-chip */
    A_ORDER = 0x2000,   /* an index a column; X and Y are elements of `extra` bytes */
    A_HEAD = 0x4000,    /* FP16, `extra` columns: one head */
    A_ROW = 0x20000,    /* FP16 columns */
    Z_SUMS = 0x8000,    /* FP32, one a head of all `extra` columns, on-chip */
    Y_FP32 = 0x10000,   /* FP32 columns */
    Z_SCALE = 0x40000,  /* struct lora_row_scale of `extra` maxima, on-chip */
    Y_CHOSEN = 0x80000, /* struct lora_chosen, `extra` of them, with X of FP32 columns: on-chip */
    Z_GATE = 0x100000,  /* one FP32 value, on-chip, as y is */
    A_FP32 = 0x200000,  /* FP32 columns */
    HEADS = 0x400000    /* JOIN_HEADS' x, y and z, on-chip */
};

/* One row an operation. */
static const uint32_t rules[] = {
    [LORA_VEC_EMBED] = A_TOKENS | B_POSITIONS | Y_ROW,
    [LORA_VEC_ADD_POSITION] = X_ROW | B_POSITIONS | Y_ROW,
    [LORA_VEC_LN_SUMS] = X_ROW | Z_LN,
    [LORA_VEC_RMS_SUMS] = X_ROW | Z_RMS,
    [LORA_VEC_LN_APPLY] = X_ROW | Z_LN | A_COLUMNS | B_COLUMNS | Y_ROW,
    [LORA_VEC_RMS_APPLY] = X_ROW | Z_RMS | A_COLUMNS | Y_ROW,
    [LORA_VEC_ROPE] = X_ROW | A_ANGLES,
    [LORA_VEC_RESIDUAL] = X_ROW | Z_ROW | Y_ROW,
    [LORA_VEC_RELU] = X_ROW | Y_ROW,
    [LORA_VEC_GELU_TANH] = X_ROW | Y_ROW,
    [LORA_VEC_GELU_ERF] = X_ROW | Y_ROW,
    [LORA_VEC_SWIGLU] = X_ROW | Z_ROW | Y_ROW,
    [LORA_VEC_ARGMAX] = X_LOGITS,
    [LORA_VEC_QUANTIZE] = X_ROW | Y_INT8,
    [LORA_VEC_QUANTIZE_HEADS] = X_ROW | Y_INT8 | Z_HEADS,
    [LORA_VEC_PERMUTE] = X_ROW | Y_ROW | A_ORDER,
    [LORA_VEC_RMS_HEADS] = X_ROW | Y_ROW | A_HEAD,
    [LORA_VEC_HEAD_SUMS] = X_ROW | Z_SUMS,
    [LORA_VEC_RMS_ROW] = X_ROW | Z_SUMS | A_ROW | Y_ROW,
    [LORA_VEC_EMBED_SCALED] = A_TOKENS | B_POSITIONS | Y_ROW,
    [LORA_VEC_RESIDUAL_SCALED] = X_ROW | Z_ROW | Y_ROW,
    [LORA_VEC_SCALE] = Y_FP32,
    [LORA_VEC_SOFTCAP] = Y_FP32,
    [LORA_VEC_GEGLU] = X_ROW | Z_ROW | Y_ROW,
    [LORA_VEC_ROW_MAX] = X_ROW | Z_SCALE,
    [LORA_VEC_QUANTIZE_ROW] = X_ROW | Y_INT8 | Z_SCALE,
    [LORA_VEC_ROUTE] = X_ROW | Y_CHOSEN,
    [LORA_VEC_ROUTE_CHOSEN] = X_ROW | Y_CHOSEN,
    [LORA_VEC_ADD_GATED] = X_ROW | Y_ROW | Z_GATE,
    [LORA_VEC_GATE] = X_ROW | Z_ROW | Y_ROW,
    [LORA_VEC_ROUTE_SIGMOID] = X_ROW | Y_CHOSEN | A_FP32,
    [LORA_VEC_SWIGLU_CLAMPED] = X_ROW | Z_ROW | Y_ROW,
    [LORA_VEC_JOIN_HEADS] = X_ROW | Y_ROW | HEADS,
};
#define OPERATIONS (sizeof rules / sizeof rules[0])

/* 0: no such operation. */
static uint32_t operands(uint32_t op) { return op < OPERATIONS ? rules[op] : 0; }

static uint32_t check_buffers(struct fw *fw, const struct lora_list *list,
                              const struct lora_vector *v, uint32_t uses) {
    uint32_t sums = uses & Z_LN ? 8 : 4;
    uint32_t x_bytes = uses & A_ORDER ? v->extra : 2, y_bytes = uses & Y_INT8 ? 1 : x_bytes;
    y_bytes = uses & Y_FP32 ? 4 : y_bytes;
    struct fw_buffer x = {LORA_BANK_ONCHIP, v->x_offset, v->x_stride, v->columns * x_bytes,
                          x_bytes};
    struct fw_buffer y = {v->y_bank, v->y_offset, v->y_stride, v->columns * y_bytes, y_bytes};
    struct fw_buffer z = {LORA_BANK_ONCHIP, v->z_offset, v->z_stride, v->columns * 2, 2};
    if (uses & X_LOGITS) {
        x = (struct fw_buffer){v->y_bank, v->x_offset, v->x_stride, v->columns * 4, 4};
        y.row_bytes = sizeof(struct lora_argmax);
        y.align = 4;
    }
    if (uses & Y_CHOSEN) {
        x.row_bytes = v->columns * 4;
        y = (struct fw_buffer){LORA_BANK_ONCHIP, v->y_offset, v->y_stride,
                               v->extra * (uint32_t)sizeof(struct lora_chosen), 4};
        x.align = 4;
    }
    if (uses & (Z_LN | Z_RMS)) {
        z.row_bytes = LORA_SEGMENTS * sums;
        z.align = 4;
    }
    if (uses & Z_HEADS) z.row_bytes = v->columns / v->extra * 2;
    if (uses & Z_SUMS) {
        z.row_bytes = v->extra / lora_head_width(v, list) * 4;
        z.align = 4;
    }
    if (uses & Z_GATE) {
        y.bank = LORA_BANK_ONCHIP;
        z.row_bytes = z.align = 4;
    }
    if (uses & Z_SCALE) {
        z.row_bytes = sizeof(struct lora_row_scale);
        z.align = 4;
    }
    if (uses & HEADS) {
        y.bank = LORA_BANK_ONCHIP;
        x.row_bytes = v->columns / v->extra * v->first * 2;
        z.row_bytes = v->a_line * v->b_line * 2;
    }
    if ((uses & (X_ROW | X_LOGITS)) && fw_check_buffer(fw, list, x) == FW_FAILED) return FW_FAILED;
    if ((uses & (Y_ROW | Y_INT8 | Y_FP32 | X_LOGITS | Y_CHOSEN)) &&
        fw_check_buffer(fw, list, y) == FW_FAILED)
        return FW_FAILED;
    if ((uses & (Z_ROW | Z_LN | Z_RMS | Z_HEADS | Z_SUMS | Z_SCALE | Z_GATE)) ||
        ((uses & HEADS) && v->a_line != 0))
        return fw_check_buffer(fw, list, z);
    return FW_MORE;
}

/* A table of `rows` rows, each padded to whole lines. */
static uint32_t check_table(struct fw *fw, uint32_t bank, uint32_t line, uint64_t rows,
                            uint32_t row_bytes) {
    return fw_check_range(fw, bank, (uint64_t)line * LORA_LINE_BYTES, rows * fw_padded(row_bytes));
}

/* The tokens as columns of a matrix in GGUF's blocks. */
static uint32_t check_token_blocks(struct fw *fw, const struct lora_list *list,
                                   const struct lora_vector *v) {
    struct lora_matrix matrix = lora_token_matrix(v, list->vocabulary);
    if ((matrix.weight_type & LORA_WEIGHT_TYPE_MASK) != LORA_WEIGHT_GGUF ||
        lora_weight_block_bytes(matrix.weight_type) == 0)
        return fw_fail(fw, LORA_ERR_OPCODE, matrix.weight_type, LORA_WEIGHT_GGUF);
    if (matrix.k & (lora_weight_unit(matrix.weight_type) - 1))
        return fw_fail(fw, LORA_ERR_SIZE, matrix.k, lora_weight_unit(matrix.weight_type));
    return fw_check_weights(fw, &matrix);
}

static uint32_t check_tables(struct fw *fw, const struct lora_list *list,
                             const struct lora_vector *v, uint32_t uses) {
    uint32_t bytes = v->columns * 2;
    if ((uses & A_COLUMNS) && v->a_bank != LORA_NO_BANK &&
        check_table(fw, v->a_bank, v->a_line, 1, bytes) == FW_FAILED)
        return FW_FAILED;
    if ((uses & B_COLUMNS) && v->b_bank != LORA_NO_BANK &&
        check_table(fw, v->b_bank, v->b_line, 1, bytes) == FW_FAILED)
        return FW_FAILED;
    if ((uses & A_TOKENS) && (v->flags & LORA_FLAG_TOKEN_BLOCKS)) {
        if (check_token_blocks(fw, list, v) == FW_FAILED) return FW_FAILED;
    } else if ((uses & A_TOKENS) &&
               check_table(fw, v->a_bank, v->a_line, list->vocabulary, bytes) == FW_FAILED)
        return FW_FAILED;
    if ((uses & B_POSITIONS) && v->b_bank != LORA_NO_BANK) {
        if (v->extra > FW_MAX_DIMENSION)
            return fw_fail(fw, LORA_ERR_SIZE, v->extra, FW_MAX_DIMENSION);
        return check_table(fw, v->b_bank, v->b_line, (uint64_t)list->positions + v->extra, bytes);
    }
    if (uses & (A_ORDER | A_FP32)) return check_table(fw, v->a_bank, v->a_line, 1, v->columns * 4);
    if (uses & A_HEAD) return check_table(fw, v->a_bank, v->a_line, 1, v->extra * 2);
    if (uses & A_ROW) return check_table(fw, v->a_bank, v->a_line, 1, bytes);
    if (uses & A_ANGLES)
        return check_table(fw, v->a_bank, v->a_line, list->positions, v->extra * 4);
    return FW_MORE;
}

/* Sums are taken of whole segments, so both ends of a board's columns are borders of segments. */
static uint32_t check_border(struct fw *fw, uint32_t column, uint32_t width) {
    uint32_t border = 0;
    for (uint32_t s = 1; s <= LORA_SEGMENTS && segment_start(width, s) <= column; s++)
        border = segment_start(width, s);
    return border == column ? (uint32_t)FW_MORE : fw_fail(fw, LORA_ERR_SIZE, column, border);
}

static uint32_t check_sums(struct fw *fw, const struct lora_vector *v) {
    if (v->columns == 0) return fw_fail(fw, LORA_ERR_SIZE, 0, LORA_UNIT_COLUMNS);
    if (check_border(fw, v->first, v->extra) == FW_FAILED) return FW_FAILED;
    return check_border(fw, v->first + v->columns, v->extra);
}

/* Whole heads of a row of whole heads. */
static uint32_t check_heads(struct fw *fw, const struct lora_list *list,
                            const struct lora_vector *v) {
    uint32_t head_dim = lora_head_width(v, list);
    if (head_dim == 0) return fw_fail(fw, LORA_ERR_SIZE, 0, 1);
    if (v->extra == 0 || v->extra > FW_MAX_DIMENSION || v->extra % head_dim)
        return fw_fail(fw, LORA_ERR_SIZE, v->extra, head_dim);
    if (v->columns % head_dim) return fw_fail(fw, LORA_ERR_SIZE, v->columns, head_dim);
    if (v->first % head_dim) return fw_fail(fw, LORA_ERR_SIZE, v->first, head_dim);
    return FW_MORE;
}

/* Groups of equal sizes, `least` experts or more in each of several, of which enough are taken; a
 * factor above 0. */
static uint32_t check_groups(struct fw *fw, const struct lora_vector *v, uint32_t least) {
    uint32_t groups = v->b_line & 0xffff, taken = v->b_line >> 16;
    uint32_t each = groups ? v->columns / groups : 0;
    if (each == 0 || each * groups != v->columns || (groups > 1 && each < least))
        return fw_fail(fw, LORA_ERR_SIZE, groups, 1);
    if (taken > groups || taken * each < v->extra) return fw_fail(fw, LORA_ERR_SIZE, taken, groups);
    return FW_MORE;
}

static uint32_t check_route(struct fw *fw, const struct lora_vector *v) {
    uint32_t sigmoid = v->op == LORA_VEC_ROUTE_SIGMOID;
    if ((sigmoid || v->b_line != 0) && check_groups(fw, v, sigmoid ? 2 : 1) == FW_FAILED)
        return FW_FAILED;
    if (sigmoid && v->first > 2) return fw_fail(fw, LORA_ERR_SIZE, v->first, 2);
    if ((sigmoid && v->scalar == 0) || v->scalar >= FP32_INFINITY) /* or negative, or NaN */
        return fw_fail(fw, LORA_ERR_SIZE, v->scalar, FP32_INFINITY);
    return FW_MORE;
}

/* Heads of `extra` columns, which hold what is copied to them. */
static uint32_t check_joined(struct fw *fw, const struct lora_vector *v) {
    if (v->extra == 0 || v->columns % v->extra)
        return fw_fail(fw, LORA_ERR_SIZE, v->columns, v->extra);
    if (v->a_line > v->extra || v->scalar > v->extra - v->a_line)
        return fw_fail(fw, LORA_ERR_SIZE, v->scalar, v->extra);
    if (v->first > FW_MAX_DIMENSION || v->scalar > v->first ||
        (v->first != 0 && v->columns / v->extra > FW_MAX_DIMENSION / v->first))
        return fw_fail(fw, LORA_ERR_SIZE, v->first, v->scalar);
    if (v->a_line != 0 && (v->b_line == 0 || v->b_line > FW_MAX_DIMENSION / v->a_line))
        return fw_fail(fw, LORA_ERR_SIZE, v->b_line, 1);
    return FW_MORE;
}

/* `first` and `extra`, where the operation gives them a meaning. */
static uint32_t check_meaning(struct fw *fw, const struct lora_list *list,
                              const struct lora_vector *v, uint32_t uses) {
    uint64_t end = (uint64_t)v->first + v->columns;
    uint32_t limit = FW_NONE;
    if (uses & (Z_LN | Z_RMS)) {
        if (v->extra == 0 || v->extra > FW_MAX_DIMENSION)
            return fw_fail(fw, LORA_ERR_SIZE, v->extra, FW_MAX_DIMENSION);
        limit = v->extra;
    } else if (uses & Z_SUMS) {
        if (check_heads(fw, list, v) == FW_FAILED) return FW_FAILED;
        limit = v->extra;
    } else if (uses & X_LOGITS) {
        limit = list->vocabulary;
    } else if ((uses & A_TOKENS) && list->embed_columns != 0) {
        limit = list->embed_columns; /* of a row given as a vector, these columns are read */
    }
    if (v->columns != 0 && end > limit)
        return fw_fail(fw, LORA_ERR_SIZE, end > FW_NONE ? FW_NONE : (uint32_t)end, limit);
    if (v->op == LORA_VEC_LN_SUMS || v->op == LORA_VEC_RMS_SUMS) return check_sums(fw, v);
    if ((uses & Z_SCALE) && (v->extra == 0 || v->extra > LORA_ROW_MAXIMA))
        return fw_fail(fw, LORA_ERR_SIZE, v->extra, LORA_ROW_MAXIMA);
    if (v->op == LORA_VEC_ROW_MAX && v->first >= v->extra)
        return fw_fail(fw, LORA_ERR_SIZE, v->first, v->extra);
    if ((uses & Y_CHOSEN) && (v->extra == 0 || v->extra > LORA_MAX_CHOSEN ||
                              v->extra > v->columns || v->columns > LORA_MAX_EXPERTS))
        return fw_fail(fw, LORA_ERR_SIZE, v->extra, LORA_MAX_CHOSEN);
    if (uses & Y_CHOSEN) return check_route(fw, v);
    if (uses & HEADS) return check_joined(fw, v);
    if (v->op == LORA_VEC_RELU && v->extra != 0 && v->extra != 2)
        return fw_fail(fw, LORA_ERR_SIZE, v->extra, 2);
    if ((uses & A_ORDER) && v->extra != 1 && v->extra != 2)
        return fw_fail(fw, LORA_ERR_SIZE, v->extra, 2);
    if ((uses & (A_ANGLES | Z_HEADS | A_HEAD)) &&
        (v->extra != list->head_dim || v->extra % 2 || v->columns % v->extra))
        return fw_fail(fw, LORA_ERR_SIZE, v->extra, list->head_dim);
    return FW_MORE;
}

/* RMSNorms: gamma without beta. */
static int has_gamma_alone(uint32_t op) {
    return op == LORA_VEC_RMS_APPLY || op == LORA_VEC_RMS_HEADS || op == LORA_VEC_RMS_ROW;
}

uint32_t fw_check_vector(struct fw *fw, const struct lora_list *list, const struct lora_vector *v) {
    uint32_t uses = operands(v->op);
    if (uses == 0) return fw_fail(fw, LORA_ERR_OPCODE, v->op, OPERATIONS - 1);
    if ((v->flags & LORA_FLAG_ONE_PLUS) && !has_gamma_alone(v->op))
        return fw_fail(fw, LORA_ERR_OPCODE, v->op, LORA_VEC_RMS_APPLY);
    if ((v->flags & LORA_FLAG_TOKEN_BLOCKS) && !(uses & A_TOKENS))
        return fw_fail(fw, LORA_ERR_OPCODE, v->op, LORA_VEC_EMBED);
    if (v->columns > FW_MAX_DIMENSION)
        return fw_fail(fw, LORA_ERR_SIZE, v->columns, FW_MAX_DIMENSION);
    if (check_meaning(fw, list, v, uses) == FW_FAILED ||
        check_buffers(fw, list, v, uses) == FW_FAILED)
        return FW_FAILED;
    return check_tables(fw, list, v, uses);
}

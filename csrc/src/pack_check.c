/* What a packing task asks for, checked before memory is touched. */
#include <inttypes.h>

#include "lora/weight_blocks.h"
#include "pack.h"

#define MAX_SIDE (1ull << 31) /* of rows and columns: two multiplied fit 64 bits */
#define WORD_VALUES 8u        /* 4-bit values of a word */

uint64_t pack_element_bytes(uint32_t element) {
    switch (element) {
    case LORA_SOURCE_I8:
    case LORA_SOURCE_NIBBLES: return 1;
    case LORA_SOURCE_F16:
    case LORA_SOURCE_BF16: return 2;
    default: return pack_is_gguf(element) ? 1 : 4;
    }
}

uint32_t pack_group(const struct lora_pack_task *task) {
    uint32_t type = task->weight_type & LORA_WEIGHT_TYPE_MASK;
    int four_bit = type == LORA_WEIGHT_W4A8 || type == LORA_WEIGHT_W4A16;
    return four_bit ? 1u << (task->weight_type >> LORA_WEIGHT_GROUP_SHIFT & 0xf) : 0;
}

uint64_t lora_pack_block_bytes(uint32_t weight_type) {
    return lora_weight_block_bytes(weight_type);
}

/* Whether blocks of the task are made of such elements, lying so. */
static int element_fits(const struct lora_pack_part *part, const struct lora_pack_task *task) {
    int oi = part->axes == LORA_AXES_OI;
    if (task->kind == LORA_PACK_TABLE)
        return (part->element <= LORA_SOURCE_F32 || pack_is_gguf(part->element)) && !oi;
    if (task->weight_type == LORA_WEIGHT_FP16) return part->element <= LORA_SOURCE_F32;
    if (pack_is_gguf(part->element)) return oi && pack_gguf_fits(part->element, task->weight_type);
    if (task->weight_type == LORA_WEIGHT_INT8) return part->element == LORA_SOURCE_I8 && oi;
    if ((task->weight_type & LORA_WEIGHT_TYPE_MASK) == LORA_WEIGHT_GGUF) return 0;
    return part->element == LORA_SOURCE_WORDS || (part->element == LORA_SOURCE_NIBBLES && oi) ||
           (part->element == LORA_SOURCE_AWQ && !oi);
}

static int check_shape(const struct lora_pack_part *part, const struct lora_pack_task *task,
                       struct lora_failure *failure) {
    int oi = part->axes == LORA_AXES_OI;
    uint64_t inputs = oi ? part->columns : part->rows, outputs = oi ? part->rows : part->columns;
    uint64_t expected = task->k;
    if (part->element == LORA_SOURCE_WORDS) expected = (task->k + WORD_VALUES - 1) / WORD_VALUES;
    if (pack_is_gguf(part->element) && oi) expected = pack_gguf_row_bytes(part->element, task->k);
    else if (pack_is_gguf(part->element)) outputs = pack_gguf_inputs(part->element, part->columns);
    if (part->element == LORA_SOURCE_AWQ && outputs < MAX_SIDE) outputs *= WORD_VALUES;
    if (part->rows < MAX_SIDE && part->columns < MAX_SIDE && inputs == expected &&
        part->first <= outputs && part->count <= outputs - part->first &&
        part->bytes == part->rows * part->columns * pack_element_bytes(part->element))
        return LORA_OK;
    return lora_fail(failure, LORA_ERR_ARGUMENT,
                     "%.120s: [%" PRIu64 ", %" PRIu64 "] in %" PRIu64 " B, outputs %" PRIu64
                     " + %" PRIu64 ": does not fit %" PRIu64 " inputs",
                     part->name, part->rows, part->columns, part->bytes, part->first, part->count,
                     task->k);
}

static int check_order(const struct lora_pack_part *part, uint64_t k,
                       struct lora_failure *failure) {
    uint64_t wrong = part->order_bytes != k * sizeof *part->order;
    int words = part->element == LORA_SOURCE_WORDS || part->element == LORA_SOURCE_AWQ;
    for (uint64_t i = 0; !wrong && i < k; i++) wrong = part->order[i] >= k;
    if (words && !wrong) return LORA_OK;
    return lora_fail(failure, LORA_ERR_ARGUMENT,
                     "%.120s: an order of inputs in %" PRIu64
                     " B; expected one of the words' %" PRIu64 " inputs",
                     part->name, part->order_bytes, k);
}

/* Scales and zero points of 4-bit weights, and the order of their inputs. */
static int check_groups(const struct lora_pack_part *part, const struct lora_pack_task *task,
                        struct lora_failure *failure) {
    uint32_t group = task->kind == LORA_PACK_MATRIX ? pack_group(task) : 0;
    uint64_t values = group ? part->count * (task->k / group) : 0;
    if (!group)
        return part->scales || part->zeros || part->order
                   ? lora_fail(failure, LORA_ERR_ARGUMENT,
                               "%.120s: scales, zero points or an order of inputs; expected "
                               "none but of 4-bit weights",
                               part->name)
                   : LORA_OK;
    if (!part->scales || !part->zeros || task->k % group ||
        part->scale_bytes != values * sizeof *part->scales || part->zero_bytes != values)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "%.120s: %" PRIu64 " B of scales, %" PRIu64 " B of zero points; expected "
                         "one of each for %" PRIu64 " groups of %u",
                         part->name, part->scale_bytes, part->zero_bytes, values, group);
    return part->order ? check_order(part, task->k, failure) : LORA_OK;
}

static int check_part(const struct lora_pack_part *part, const struct lora_pack_task *task,
                      uint32_t axes, struct lora_failure *failure) {
    if (!part->data || !part->name || part->axes != axes || axes > LORA_AXES_OI ||
        !element_fits(part, task))
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "%.120s: element %u, axes %u: not those of weight type %u, or not as the "
                         "part before",
                         part->name ? part->name : "?", part->element, part->axes,
                         task->weight_type);
    int status = check_shape(part, task, failure);
    return status ? status : check_groups(part, task, failure);
}

static int check_task(uint32_t part_count, const struct lora_pack_task *task,
                      struct lora_failure *failure) {
    if (task->part_first > part_count || task->part_count > part_count - task->part_first ||
        !task->part_count || !task->k || !task->n || task->k >= MAX_SIDE || task->n >= MAX_SIDE ||
        task->kind > LORA_PACK_TABLE)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "packing: [%" PRIu64 ", %" PRIu64 "] of %u parts from part %u of %u",
                         task->k, task->n, task->part_count, task->part_first, part_count);
    if (task->kind == LORA_PACK_MATRIX && !lora_pack_block_bytes(task->weight_type))
        return lora_fail(failure, LORA_ERR_ARGUMENT, "packing: weight type %#x is unknown",
                         task->weight_type);
    return LORA_OK;
}

/* `columns` of all parts hold what the task places. */
static int check_columns(const struct lora_pack_part *first, const struct lora_pack_task *task,
                         uint64_t columns, struct lora_failure *failure) {
    int table = task->kind == LORA_PACK_TABLE;
    uint64_t units = table ? task->k : (task->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N;
    if (task->first > units || task->count > units - task->first)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "packing %.120s: units %" PRIu64 " + %" PRIu64 " of %" PRIu64
                         ": out of range",
                         first->name, task->first, task->count, units);
    uint64_t from = table ? 0 : task->first * LORA_BLOCK_N, to = task->n;
    if (!table && (task->first + task->count) * LORA_BLOCK_N < to)
        to = (task->first + task->count) * LORA_BLOCK_N;
    int partial = !table && task->partial;
    uint64_t start = partial ? task->column_first : 0;
    if (!partial) to = task->n;
    if (start <= from && start <= task->n && columns <= task->n - start && start + columns >= to &&
        start == task->column_first)
        return LORA_OK;
    return lora_fail(failure, LORA_ERR_ARGUMENT,
                     "packing %.120s: parts of %" PRIu64 " outputs from %" PRIu64 " on, %" PRIu64
                     " .. %" PRIu64 " of %" PRIu64 " expected",
                     first->name, columns, start, from, to, task->n);
}

int pack_check(const struct lora_pack_part *parts, uint32_t part_count,
               const struct lora_pack_task *task, struct lora_failure *failure) {
    uint64_t columns = 0;
    int status = check_task(part_count, task, failure);
    if (status) return status;
    const struct lora_pack_part *first = parts + task->part_first;
    for (uint32_t p = 0; p < task->part_count; p++) { /* axes of all: tiles may be of two parts */
        status = check_part(first + p, task, first->axes, failure);
        if (status) return status;
        columns += first[p].count;
    }
    return check_columns(first, task, columns, failure);
}

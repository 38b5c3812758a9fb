/* REGISTER: a recurrence: its planes of the cache, x, y, the table. */
#include "fw.h"
#include "lora/recurrence_layout.h"

#define MAX_COLUMNS (1u << 24) /* of a row: sizes stay far from overflow */

static uint32_t check_range(struct fw *fw, uint32_t value, uint32_t low, uint32_t high) {
    if (value >= low && value <= high) return FW_MORE;
    return fw_fail(fw, LORA_ERR_SIZE, value, value < low ? low : high);
}

static uint32_t check_delta(struct fw *fw, const struct lora_recurrence *c) {
    if (check_range(fw, c->key_columns, 1, LORA_MAX_RECURRENT_COLUMNS) == FW_FAILED ||
        check_range(fw, c->value_columns, 1, LORA_MAX_RECURRENT_COLUMNS) == FW_FAILED ||
        check_range(fw, c->key_heads, 1, LORA_MAX_RECURRENT_COLUMNS) == FW_FAILED ||
        check_range(fw, c->value_heads, 1, LORA_MAX_RECURRENT_COLUMNS) == FW_FAILED)
        return FW_FAILED;
    return fw_check_equal(fw, c->value_heads % c->key_heads, 0);
}

/* Key heads of several KV heads each. */
static uint32_t check_sharing(struct fw *fw, const struct lora_recurrence *c) {
    if (c->form != LORA_RECURRENCE_SELECTIVE_SCAN || c->sharing == 0)
        return fw_check_equal(fw, (uint32_t)c->sharing | c->sharing_first, 0);
    if (fw_check_equal(fw, c->key_heads, 1) == FW_FAILED) return FW_FAILED;
    return check_range(fw, c->sharing_first, 0, c->sharing - 1u);
}

static uint32_t check_heads(struct fw *fw, const struct lora_recurrence *c) {
    if (check_sharing(fw, c) == FW_FAILED) return FW_FAILED;
    if (c->form == LORA_RECURRENCE_GATED_DELTA || c->form == LORA_RECURRENCE_SELECTIVE_SCAN)
        return check_delta(fw, c);
    if (c->form != LORA_RECURRENCE_SHORT_CONV)
        return fw_fail(fw, LORA_ERR_OPCODE, c->form, LORA_RECURRENCE_SHORT_CONV);
    if (fw_check_equal(fw, c->key_heads | c->key_columns, 0) == FW_FAILED ||
        fw_check_equal(fw, c->value_heads, 1) == FW_FAILED)
        return FW_FAILED;
    return check_range(fw, c->value_columns, 1, UINT16_MAX);
}

/* Its planes are commands' as a layer's K and V are: none is committed behind it. */
static uint32_t check_planes(struct fw *fw, const struct lora_list *list,
                             const struct lora_recurrence *c) {
    uint32_t end = (uint32_t)c->kv_layer + c->planes;
    if (fw_check_equal(fw, list->kv_type, LORA_KV_FP16) == FW_FAILED) return FW_FAILED;
    if (end > list->kv_layers) return fw_fail(fw, LORA_ERR_SIZE, end, list->kv_layers);
    if (recurrence_planes(list, c) > c->planes)
        return fw_fail(fw, LORA_ERR_SIZE, c->planes, recurrence_planes(list, c));
    if (fw->list->kv_stored < end) fw->list->kv_stored = end;
    return FW_MORE;
}

uint32_t fw_check_recurrence(struct fw *fw, const struct lora_list *list,
                             const struct lora_recurrence *c) {
    struct fw_buffer x = {LORA_BANK_ONCHIP, c->x_offset, c->x_stride, 0, 2};
    struct fw_buffer y = {LORA_BANK_ONCHIP, c->y_offset, c->y_stride, 0, 2};
    if (check_heads(fw, c) == FW_FAILED ||
        check_range(fw, c->kernel, 1, LORA_MAX_CONVOLUTION) == FW_FAILED ||
        check_range(fw, list->head_dim, 1, UINT16_MAX) == FW_FAILED ||
        check_range(fw, list->kv_heads, 1, UINT16_MAX) == FW_FAILED ||
        check_range(fw, recurrence_kept(c), 1, MAX_COLUMNS / list->kv_heads) == FW_FAILED ||
        check_planes(fw, list, c) == FW_FAILED)
        return FW_FAILED;
    if (c->form != LORA_RECURRENCE_SHORT_CONV) fw->list->states = 1;
    uint32_t values = recurrence_values(c) * list->kv_heads;
    if (check_range(fw, c->y_first, 0, values) == FW_FAILED ||
        check_range(fw, c->y_columns, 0, values - c->y_first) == FW_FAILED)
        return FW_FAILED;
    x.row_bytes = (recurrence_row(list, c) + c->y_columns) * 2;
    y.row_bytes = c->y_columns * 2;
    if (fw_check_dimension(fw, recurrence_row(list, c) + c->y_columns, 1) == FW_FAILED ||
        fw_check_buffer(fw, list, x) == FW_FAILED || fw_check_buffer(fw, list, y) == FW_FAILED)
        return FW_FAILED;
    return fw_check_range(fw, c->table_bank, (uint64_t)c->table_line * LORA_LINE_BYTES,
                          recurrence_table(list, c).bytes);
}

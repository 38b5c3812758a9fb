/* GENERATE: what its header and row may not hold, besides the checks of any step. */
#include "fw.h"

/* One step's change to lengths and slots is then what `behind` can hold, and entries of the page
 * table need no undo: nothing is read through them yet. */
uint32_t fw_generate_check_op(struct fw *fw, const struct lora_kv_op *op) {
    uint32_t length = fw->state.lengths[op->sequence];
    if (op->sequence != fw->generate.row.sequence)
        return fw_fail(fw, LORA_ERR_KV, op->sequence, fw->generate.row.sequence);
    if (op->kind == LORA_KV_COMMIT) {
        if (op->c != 1) return fw_fail(fw, LORA_ERR_KV, op->c, 1);
        fw->step_commits = 1;
        return FW_MORE;
    }
    if (op->kind != LORA_KV_TABLE) return fw_fail(fw, LORA_ERR_KV, op->kind, LORA_KV_TABLE);
    if ((uint64_t)op->a * LORA_TILE_POSITIONS < length)
        return fw_fail(fw, LORA_ERR_KV, op->a, length / LORA_TILE_POSITIONS);
    return FW_MORE;
}

uint32_t fw_generate_check_row(struct fw *fw, const struct lora_row *row) {
    if (row->flags != LORA_ROW_WANT_ARGMAX)
        return fw_fail(fw, LORA_ERR_ROW, row->flags, LORA_ROW_WANT_ARGMAX);
    if (row->parent != -1) return fw_fail(fw, LORA_ERR_ROW, (uint32_t)row->parent, FW_NONE);
    return FW_MORE;
}

/* REGISTER: every field of a command, every address that it can reach with max_rows rows. */
#include "fw.h"
#include "lora/kv_layout.h"

static uint32_t check_below(struct fw *fw, uint32_t found, uint32_t limit) {
    return found < limit ? (uint32_t)FW_MORE : fw_fail(fw, LORA_ERR_SIZE, found, limit);
}

/* A slope and a factor, FP32, of each local query head. */
static uint32_t check_slopes(struct fw *fw, const struct lora_attention *command) {
    if (command->slope_kind == LORA_SLOPE_NONE) return FW_MORE;
    if (command->slope_kind > LORA_SLOPE_SINK)
        return fw_fail(fw, LORA_ERR_OPCODE, command->slope_kind, LORA_SLOPE_SINK);
    return fw_check_range(fw, command->slope_bank, (uint64_t)command->slope_line * LORA_LINE_BYTES,
                          (uint64_t)command->q_heads * sizeof(struct lora_head_slope));
}

static uint32_t check_attention(struct fw *fw, const struct lora_list *list,
                                const struct lora_attention *command) {
    uint32_t columns = (uint32_t)command->q_heads * command->head_dim;
    uint32_t width = list->kv_type == LORA_KV_INT8 ? 1 : 2;
    struct fw_buffer q = {LORA_BANK_ONCHIP, command->q_offset, command->q_stride, columns * width,
                          width};
    struct fw_buffer y = {LORA_BANK_ONCHIP, command->y_offset, command->y_stride, columns * 2, 2};
    uint32_t last = (uint32_t)command->q_first + command->q_heads - 1;
    if (fw_check_equal(fw, command->head_dim, list->head_dim) == FW_FAILED ||
        fw_check_equal(fw, command->kv_heads, list->kv_heads) == FW_FAILED ||
        check_below(fw, command->kv_layer, list->kv_layers) == FW_FAILED)
        return FW_FAILED;
    if (command->group == 0) return fw_fail(fw, LORA_ERR_SIZE, 0, 1);
    if (command->q_heads != 0) {
        if (command->q_first / command->group < command->kv_first)
            return fw_fail(fw, LORA_ERR_SIZE, command->q_first, command->kv_first);
        if (check_below(fw, last / command->group - command->kv_first, command->kv_heads) ==
            FW_FAILED)
            return FW_FAILED;
    }
    if (command->cap >= FP32_INFINITY) /* or negative, or NaN */
        return fw_fail(fw, LORA_ERR_SIZE, command->cap, FP32_INFINITY);
    if (check_slopes(fw, command) == FW_FAILED || fw_check_buffer(fw, list, q) == FW_FAILED)
        return FW_FAILED;
    return fw_check_buffer(fw, list, y);
}

static uint32_t check_kv_store(struct fw *fw, const struct lora_list *list,
                               const struct lora_kv_store *command) {
    struct fw_list *entry = fw->list;
    uint32_t width = list->kv_type == LORA_KV_FP16 ? 2 : 1;
    uint32_t bytes = (uint32_t)command->kv_heads * command->head_dim * width;
    struct fw_buffer k = {LORA_BANK_ONCHIP, command->k_offset, command->stride, bytes, width};
    struct fw_buffer v = {LORA_BANK_ONCHIP, command->v_offset, command->stride, bytes, width};
    struct fw_buffer scales = {LORA_BANK_ONCHIP, command->k_scales, command->scale_stride,
                               command->kv_heads * 2u, 2};
    if (fw_check_equal(fw, command->head_dim, list->head_dim) == FW_FAILED ||
        fw_check_equal(fw, command->kv_heads, list->kv_heads) == FW_FAILED ||
        check_below(fw, command->kv_layer, list->kv_layers) == FW_FAILED ||
        fw_check_buffer(fw, list, k) == FW_FAILED || fw_check_buffer(fw, list, v) == FW_FAILED)
        return FW_FAILED;
    if (entry->kv_stored <= command->kv_layer) entry->kv_stored = command->kv_layer + 1u;
    if (list->kv_type != LORA_KV_INT8_HEADS) return FW_MORE;
    if (fw_check_buffer(fw, list, scales) == FW_FAILED) return FW_FAILED;
    scales.offset = command->v_scales;
    return fw_check_buffer(fw, list, scales);
}

static uint32_t rows_of(const struct lora_list *list, uint32_t flags) {
    return flags & LORA_FLAG_VOTES ? 1 : list->max_rows;
}

/* Which boards a gather of a list of stages is of. What a stage receives and passes are the first
 * and the last of its gathers: their sums are told by that. */
static uint32_t check_span(struct fw *fw, const struct lora_list *list,
                           const struct lora_gather *command, uint32_t index) {
    struct fw_list *entry = fw->list;
    uint32_t votes = command->flags & LORA_FLAG_VOTES;
    uint32_t each = list->stage_boards, span = command->span;
    uint32_t last = span == LORA_SPAN_TO_NEXT ? list->boards - each : list->boards;
    int outer = span == LORA_SPAN_TO_NEXT || span == LORA_SPAN_FROM_PREVIOUS;
    if (span > LORA_SPAN_FROM_PREVIOUS || (span != LORA_SPAN_ALL && (each == 0 || votes)))
        return fw_fail(fw, LORA_ERR_SIZE, span, LORA_SPAN_ALL);
    if (each && !votes && span == LORA_SPAN_ALL)
        return fw_fail(fw, LORA_ERR_SIZE, span, LORA_SPAN_STAGE);
    if (!votes && entry->passed != FW_NONE)
        return fw_fail(fw, LORA_ERR_OPCODE, index, entry->passed);
    if (!outer) return FW_MORE;
    if (command->flags & LORA_FLAG_SELECTED)
        return fw_fail(fw, LORA_ERR_OPCODE, command->flags, LORA_FLAG_SIGNAL_SEGMENTS);
    if (span == LORA_SPAN_TO_NEXT) entry->passed = index;
    else entry->received = index;
    if (list->rank >= last || (span == LORA_SPAN_FROM_PREVIOUS && list->rank < each))
        return fw_fail(fw, LORA_ERR_SIZE, span, LORA_SPAN_STAGE);
    if (span == LORA_SPAN_FROM_PREVIOUS && fw->collective != FW_NONE)
        return fw_fail(fw, LORA_ERR_OPCODE, index, fw->collective);
    return FW_MORE;
}

static uint32_t check_gather(struct fw *fw, const struct lora_list *list,
                             const struct lora_gather *command, uint32_t index) {
    uint32_t width = command->element_bytes;
    struct fw_buffer rows = {LORA_BANK_ONCHIP, command->offset, command->stride,
                             command->columns * width, width == 1 ? 1 : 2};
    if (fw_check_dimension(fw, command->columns, 1) == FW_FAILED) return FW_FAILED;
    if (width != 1 && width != 2 && width != 4 && width != 8)
        return fw_fail(fw, LORA_ERR_SIZE, width, 2);
    if (command->share_unit == 0 || command->segment_unit == 0)
        return fw_fail(fw, LORA_ERR_SIZE, 0, 1);
    if (check_span(fw, list, command, index) == FW_FAILED) return FW_FAILED;
    if (fw->collective != FW_NONE && command->collective <= fw->collective)
        return fw_fail(fw, LORA_ERR_SIZE, command->collective, fw->collective + 1);
    fw->collective = command->collective;
    return fw_check_rows(fw, list, rows, rows_of(list, command->flags));
}

static uint32_t check_move(struct fw *fw, const struct lora_list *list,
                           const struct lora_move_rows *command) {
    uint32_t rows = rows_of(list, command->flags);
    struct fw_buffer x = {command->x_bank, command->x_offset, command->x_stride, command->bytes, 1};
    struct fw_buffer y = {command->y_bank, command->y_offset, command->y_stride, command->bytes, 1};
    if (fw_check_rows(fw, list, x, rows) == FW_FAILED) return FW_FAILED;
    return fw_check_rows(fw, list, y, rows);
}

/* Commits have the layers in order, and all of them if there is one: a slot of a layer is moved
 * before a KV_STORE writes it again. */
static uint32_t check_kv_commit(struct fw *fw, const struct lora_list *list,
                                const struct lora_kv_commit *command, uint32_t index) {
    struct fw_list *entry = fw->list;
    uint32_t layers;
    if (command->kv_layer != entry->kv_committed)
        return fw_fail(fw, LORA_ERR_OPCODE, command->kv_layer, entry->kv_committed);
    if (!kv_commit_layers(list, command, &layers))
        return fw_fail(fw, LORA_ERR_SIZE, command->layers, list->kv_layers);
    if (entry->kv_stored > command->kv_layer)
        return fw_fail(fw, LORA_ERR_OPCODE, index, entry->kv_stored);
    if (entry->kv_commit == FW_NONE) entry->kv_commit = index;
    entry->kv_committed += layers;
    return FW_MORE;
}

static uint32_t check_end(struct fw *fw, const struct lora_list *list) {
    if (fw->list->kv_commit != FW_NONE && fw->list->kv_committed != list->kv_layers)
        return fw_fail(fw, LORA_ERR_OPCODE, fw->list->kv_committed, list->kv_layers);
    return FW_MORE;
}

/* The unit that executes an opcode and the flags that it knows; unit LORA_UNITS: no such opcode. */
static void opcode_rules(uint32_t opcode, uint32_t *unit, uint32_t *flags) {
    static const struct {
        uint8_t unit;
        uint16_t flags;
    } rules[] = {
        [0] = {LORA_UNITS, 0},
        [LORA_CMD_MATRIX] = {LORA_UNIT_MPU,
                             LORA_FLAG_SELECTED | LORA_FLAG_NO_BIAS | LORA_FLAG_ROW_SCALES},
        [LORA_CMD_VECTOR] = {LORA_UNIT_VFU,
                             LORA_FLAG_SELECTED | LORA_FLAG_ONE_PLUS | LORA_FLAG_TOKEN_BLOCKS},
        [LORA_CMD_ATTENTION] = {LORA_UNIT_MPU, LORA_FLAG_SELECTED | LORA_FLAG_SIGNAL_HEADS},
        [LORA_CMD_KV_STORE] = {LORA_UNIT_DMA, 0},
        [LORA_CMD_KV_COMMIT] = {LORA_UNIT_DMA, 0},
        [LORA_CMD_GATHER] = {LORA_UNIT_ROUTER,
                             LORA_FLAG_SELECTED | LORA_FLAG_SIGNAL_SEGMENTS | LORA_FLAG_VOTES},
        [LORA_CMD_MOVE_ROWS] = {LORA_UNIT_DMA,
                                LORA_FLAG_SELECTED | LORA_FLAG_PACK | LORA_FLAG_VOTES},
        [LORA_CMD_CHECKSUM] = {LORA_UNITS, 0}, /* not for lists */
        [LORA_CMD_FENCE] = {LORA_UNIT_CONTROL, 0},
        [LORA_CMD_END] = {LORA_UNIT_CONTROL, 0},
        [LORA_CMD_ADAPTER] = {LORA_UNIT_MPU, LORA_FLAG_SELECTED},
        [LORA_CMD_BALLOT] = {LORA_UNIT_CONTROL, 0},
        [LORA_CMD_EXPERTS] = {LORA_UNIT_MPU, LORA_FLAG_SELECTED | LORA_FLAG_COMBINE |
                                                 LORA_FLAG_ROW_SCALES | LORA_FLAG_EXPERT_BIAS},
        [LORA_CMD_RECURRENCE] = {LORA_UNIT_MPU, 0},
    };
    uint32_t known = opcode < sizeof rules / sizeof rules[0] ? opcode : 0;
    *unit = rules[known].unit;
    *flags = rules[known].flags | LORA_FLAG_WAIT_SEGMENTS | LORA_FLAG_WAIT_GROUPS;
}

static uint32_t check_common(struct fw *fw, uint32_t index, const struct lora_command *command) {
    uint32_t unit, flags;
    int last = index + 1 == fw->list->header.command_count;
    opcode_rules(command->opcode, &unit, &flags);
    if (unit == LORA_UNITS) return fw_fail(fw, LORA_ERR_OPCODE, command->opcode, LORA_CMD_END);
    if (command->unit != unit) return fw_fail(fw, LORA_ERR_OPCODE, command->unit, unit);
    if (command->flags & ~flags) return fw_fail(fw, LORA_ERR_OPCODE, command->flags, flags);
    if (last != (command->opcode == LORA_CMD_END))
        return fw_fail(fw, LORA_ERR_OPCODE, command->opcode, LORA_CMD_END);
    if (fw_check_counter(fw, command->wait_counter, command->flags & LORA_FLAG_WAIT_SEGMENTS) ==
        FW_FAILED)
        return FW_FAILED;
    if (fw_check_counter(fw, command->signal_counter, command->flags & LORA_FLAG_SIGNAL_SEGMENTS) ==
        FW_FAILED)
        return FW_FAILED;
    return FW_MORE;
}

union any_command {
    struct lora_command command;
    struct lora_matrix matrix;
    struct lora_vector vector;
    struct lora_attention attention;
    struct lora_kv_store kv_store;
    struct lora_kv_commit kv_commit;
    struct lora_gather gather;
    struct lora_move_rows move;
    struct lora_adapter adapter;
    struct lora_experts experts;
    struct lora_recurrence recurrence;
    struct lora_ballot ballot;
};

uint32_t fw_check_command(struct fw *fw, uint32_t index, const struct lora_command *command) {
    const struct lora_list *list = &fw->list->header;
    union any_command any;
    fw_copy(&any, command, sizeof any);
    fw_blame(fw, index, command);
    if (check_common(fw, index, command) == FW_FAILED) return FW_FAILED;
    switch (command->opcode) {
    case LORA_CMD_MATRIX: return fw_check_matrix(fw, list, &any.matrix);
    case LORA_CMD_VECTOR: return fw_check_vector(fw, list, &any.vector);
    case LORA_CMD_ATTENTION: return check_attention(fw, list, &any.attention);
    case LORA_CMD_KV_STORE: return check_kv_store(fw, list, &any.kv_store);
    case LORA_CMD_KV_COMMIT: return check_kv_commit(fw, list, &any.kv_commit, index);
    case LORA_CMD_GATHER: return check_gather(fw, list, &any.gather, index);
    case LORA_CMD_MOVE_ROWS: return check_move(fw, list, &any.move);
    case LORA_CMD_ADAPTER: return fw_check_adapter(fw, list, &any.adapter);
    case LORA_CMD_EXPERTS: return fw_check_experts(fw, list, &any.experts);
    case LORA_CMD_RECURRENCE: return fw_check_recurrence(fw, list, &any.recurrence);
    case LORA_CMD_BALLOT: return fw_check_ballot(fw, list, &any.ballot, index);
    case LORA_CMD_END: return check_end(fw, list);
    default: return FW_MORE;
    }
}

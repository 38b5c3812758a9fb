/* The control program's state machine: a doorbell starts an operation, each poll does one slice of
 * it, the end writes the records and then the done bit. */
#include "fw.h"

uint32_t fw_bytes(void) { return sizeof(struct fw); }

void fw_reset(struct fw *fw) { fw_zero(fw, sizeof *fw); }

static void boot(struct fw *fw) {
    fw->booted = 1;
    fw->features = hal_features();
    hal_set_register(LORA_REG_IDENTITY_ABI, LORA_ABI_NUMBER);
    hal_set_register(LORA_REG_FIRMWARE_STATE, LORA_FW_IDLE);
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) {
        hal_set_register(LORA_REG_LAST_INDEX + 4 * unit, FW_NONE);
        hal_set_register(LORA_REG_UNIT_STATE + 4 * unit, LORA_UNIT_IDLE);
    }
    if (!(hal_register(LORA_REG_AP_CTRL) & LORA_AP_START))
        hal_set_register(LORA_REG_AP_CTRL, LORA_AP_IDLE);
}

static uint32_t begin_operation(struct fw *fw) {
    switch (fw->operation) {
    case LORA_OP_IDENTIFY: return FW_OVER;
    case LORA_OP_REGISTER: return fw_register_begin(fw);
    case LORA_OP_STEP: return fw_step_begin(fw);
    case LORA_OP_CHECKSUM: return fw_checksum_begin(fw);
    case LORA_OP_LINK_TEST: return fw_link_test_begin(fw);
    case LORA_OP_GENERATE: return fw_generate_begin(fw);
    case LORA_OP_REGIONS: return fw_regions_begin(fw);
    case LORA_OP_SCRUB: return fw_scrub_begin(fw);
    default: return fw_fail(fw, LORA_ERR_OPERATION, fw->operation, LORA_OP_SCRUB);
    }
}

static void begin_records(struct fw *fw) {
    struct lora_completion *completion = &fw->completion;
    fw_zero(completion, sizeof *completion);
    completion->size = sizeof *completion;
    completion->abi = LORA_ABI_NUMBER;
    completion->operation = fw->operation;
    completion->list_id = hal_register(LORA_REG_LIST_ID);
    completion->nonfinite_index = completion->nonfinite_row = FW_NONE;
    fw_blame_none(fw);
}

static uint32_t begin(struct fw *fw) {
    hal_set_register(LORA_REG_AP_CTRL, 0); /* start taken; neither idle nor done */
    hal_set_register(LORA_REG_FIRMWARE_STATE, LORA_FW_RUNNING);
    fw->operation = hal_register(LORA_REG_OPERATION);
    fw->control_bank = hal_register(LORA_REG_CONTROL_BANK);
    fw->block_offset = hal_register(LORA_REG_BLOCK_OFFSET);
    fw->accepted = fw->token_count = fw->behind.valid = 0;
    fw->sequencer = FW_SOFTWARE;
    fw->started = fw->progressed = fw->run_started = hal_cycles();
    fw->timeout = fw_timeout();
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) {
        fw->cursors[unit].loaded = 0;
        hal_set_register(LORA_REG_LAST_INDEX + 4 * unit, FW_NONE);
        hal_set_register(LORA_REG_UNIT_STATE + 4 * unit, LORA_UNIT_IDLE);
    }
    begin_records(fw);
    fw_arenas_load(fw);
    return begin_operation(fw);
}

static uint32_t run(struct fw *fw) {
    uint32_t outcome = fw->sequencer == FW_SOFTWARE ? fw_dispatch(fw) : fw_sequence(fw);
    if (outcome != FW_OVER) return outcome;
    if (fw->operation != LORA_OP_GENERATE) return fw_compare_gathers(fw);
    outcome = fw_generate_decide(fw);
    return outcome == FW_MORE ? fw_scrub_between(fw) : outcome;
}

/* A step's header, then its rows; short ones and the start of the list in one slice. */
static uint32_t prepare(struct fw *fw) {
    uint32_t outcome = FW_MORE;
    if (fw->phase == FW_PHASE_KV) outcome = fw_step_kv(fw);
    if (outcome == FW_MORE && fw->phase == FW_PHASE_ROWS) outcome = fw_step_rows(fw);
    if (outcome == FW_MORE && fw->phase == FW_PHASE_RUN) outcome = run(fw);
    return outcome;
}

static uint32_t go_on(struct fw *fw) {
    switch (fw->phase) {
    case FW_PHASE_SEAL: return fw_register_seal(fw);
    case FW_PHASE_CHECK: return fw_register_check(fw);
    case FW_PHASE_DRY_RUN: return fw_register_dry_run(fw);
    case FW_PHASE_KV:
    case FW_PHASE_ROWS: return prepare(fw);
    case FW_PHASE_KV_MOVE: return fw_step_kv_move(fw);
    case FW_PHASE_RUN: return run(fw);
    case FW_PHASE_CHECKSUM: return fw_checksum(fw);
    case FW_PHASE_REGIONS: return fw_regions(fw);
    case FW_PHASE_SCRUB: return fw_scrub_run(fw);
    default: return fw_link_test(fw);
    }
}

static uint32_t expire(struct fw *fw) {
    if (fw->phase == FW_PHASE_LINK_TEST) fw_link_test_store(fw);
    else fw_blame_stall(fw);
    return fw_fail(fw, LORA_ERR_WATCHDOG, fw->error.found, fw->error.expected);
}

uint32_t fw_poll(struct fw *fw) {
    uint32_t outcome;
    if (!fw->booted) boot(fw);
    if (fw->phase != FW_PHASE_IDLE) outcome = go_on(fw);
    else {
        uint32_t control = hal_register(LORA_REG_AP_CTRL);
        outcome = fw->scrub.count ? fw_scrub_idle(fw, control) : (uint32_t)FW_OVER;
        if (outcome != FW_OVER) return outcome == FW_MORE ? LORA_FW_RUNNING : LORA_FW_WAITING;
        if (!(control & LORA_AP_START)) return LORA_FW_IDLE;
        outcome = begin(fw);
    }
    if (outcome == FW_MORE && fw->phase == FW_PHASE_KV) outcome = prepare(fw);
    if (outcome == FW_MORE) fw->progressed = hal_cycles();
    if ((outcome == FW_MORE || outcome == FW_WAITING) && fw_watchdog_expired(fw))
        outcome = expire(fw);
    if (outcome == FW_MORE || outcome == FW_WAITING) {
        uint32_t state = outcome == FW_MORE ? LORA_FW_RUNNING : LORA_FW_WAITING;
        hal_set_register(LORA_REG_FIRMWARE_STATE, state);
        return state;
    }
    fw_complete(fw);
    return fw->error.code == LORA_OK ? LORA_FW_DONE : LORA_FW_ERROR;
}

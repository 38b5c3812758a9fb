/* A simulated control whose first operation, and first step, is cut off at any cycle and done
 * again: the host restores what it has in board memory, and all goes as without. */
#ifndef TEST_FW_CUT_OFF_H
#define TEST_FW_CUT_OFF_H

#ifdef LORA_SIMULATED_CONTROL

enum { LONGEST_CUT = 16 }; /* power of two, of cycles */

static int is_first(uint32_t operation) {
    int step = operation == LORA_OP_STEP || operation == LORA_OP_GENERATE;
    return board.operations == 0 || (step && board.operations == 1 && board.list_sum == list_sum());
}

/* As it was before, but for the control, which knows no list any more. */
static void cut_off(uint32_t operation) {
    if (!control_interrupts() || !is_first(operation)) return;
    void *memory = malloc(BANK_BYTES), *all = malloc(sizeof board);
    memcpy(memory, board.banks[CONTROL], BANK_BYTES);
    memcpy(all, &board, sizeof board);
    begin_operation(operation);
    control_pass(control_random(1u << control_random(LONGEST_CUT)));
    control_restart();
    memcpy(&board, all, sizeof board);
    memcpy(board.banks[CONTROL], memory, BANK_BYTES);
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) board.units[unit].busy = 0;
    if (board.operations) {
        uint32_t at = board.registers[LORA_REG_BLOCK_OFFSET / 4];
        uint32_t id = board.registers[LORA_REG_LIST_ID / 4];
        board.registers[LORA_REG_BLOCK_OFFSET / 4] = LIST_AT;
        board.registers[LORA_REG_LIST_ID / 4] = 0;
        CHECK_EQUAL(operate(LORA_OP_REGISTER), LORA_OK);
        board.registers[LORA_REG_BLOCK_OFFSET / 4] = at;
        board.registers[LORA_REG_LIST_ID / 4] = id;
    }
    free(all);
    free(memory);
}

#else

static void cut_off(uint32_t operation) { (void)operation; }

#endif
#endif

/* Command lists: a header and commands of any bytes under a right seal. The board ends the run on
 * an access outside of its arenas, on a unit that is started twice and on a run without an end. A
 * list that is taken runs two steps. Input: struct lora_list, then commands of 64 bytes. */
#include "firmware_board.h"
#include "taken.h"

uint32_t fuzz_taken;

static void run_step(uint32_t number, uint32_t position, int32_t parent) {
    struct test_step step = step_new(number, 0);
    if (number == 1) step_op(&step, LORA_KV_LENGTH, 0, 0, 0, 0);
    step_row(&step, 0, position, 10, parent)->flags = LORA_ROW_WANT_ARGMAX;
    step_row(&step, 0, position + 1, 11, 10);
    (void)step_run(&step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static struct test_list given;
    memset(&given, 0, sizeof given);
    memcpy(&given, data, bytes < sizeof given ? bytes : sizeof given);
    board_clean();
    if (list_register(&given) != LORA_OK) return 0;
    fuzz_taken++;
    *table_entry(0, 0) = 2;
    run_step(1, 0, -1);
    run_step(2, 0, -1);
    return 0;
}

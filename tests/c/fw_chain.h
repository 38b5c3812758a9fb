/* The chain of rows that the step tests commit. */
#ifndef TEST_FW_CHAIN_H
#define TEST_FW_CHAIN_H

#include "fw_step.h"

static struct test_list list;

static void step_path(struct test_step *step, uint16_t slot) {
    step->path[step->header.path_count++] = slot;
}

/* Sequence 0: step 1 writes a chain of three rows and a sibling of the second. */
static void chain(void) {
    struct test_step step = step_new(1, 0);
    board_ready(&list);
    step_row(&step, 0, 0, 10, -1);
    step_row(&step, 0, 1, 11, 10);
    step_row(&step, 0, 2, 12, 11);
    step_row(&step, 0, 1, 13, 10);
    CHECK_EQUAL(step_run(&step), LORA_OK);
    CHECK_EQUAL(completion().row_count, 4);
    CHECK_EQUAL(completion().step, 1);
}

static struct test_step commit_three(uint32_t number, uint32_t epoch) {
    struct test_step step = step_new(number, epoch);
    step_path(&step, 10);
    step_path(&step, 11);
    step_path(&step, 12);
    step_op(&step, LORA_KV_COMMIT, 0, 0, 0, 3);
    return step;
}

#endif

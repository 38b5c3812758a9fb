/* The error record: who is to blame is set first, what is wrong when it is found. */
#include "fw.h"

void fw_blame_none(struct fw *fw) {
    struct lora_error_record *error = &fw->error;
    fw_zero(error, sizeof *error);
    error->size = sizeof *error;
    error->index = error->opcode = error->unit = error->bank = FW_NONE;
    error->counter = error->port = error->row = FW_NONE;
    error->step = fw->completion.step;
}

void fw_blame(struct fw *fw, uint32_t index, const struct lora_command *command) {
    fw->error.index = index;
    fw->error.opcode = command->opcode;
    fw->error.unit = command->unit;
}

uint32_t fw_fail(struct fw *fw, uint32_t code, uint32_t found, uint32_t expected) {
    fw->error.code = code;
    fw->error.found = found;
    fw->error.expected = expected;
    return FW_FAILED;
}

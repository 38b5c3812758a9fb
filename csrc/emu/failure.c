#include "board.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct lora_failure *failure, int code, const struct emu_board *board) {
    memset(failure, 0, sizeof *failure);
    failure->size = sizeof *failure;
    failure->code = (uint32_t)code;
    failure->board = board ? (int32_t)board->index : -1;
    failure->bank = failure->port = failure->peer_board = failure->peer_port = -1;
    failure->index = failure->opcode = failure->unit = failure->counter = failure->row = ~0u;
}

int emu_fail(struct lora_failure *failure, int code, const struct emu_board *board,
             const char *format, ...) {
    if (!failure) return code;
    fill(failure, code, board);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->message, sizeof failure->message, format, arguments);
    va_end(arguments);
    return code;
}

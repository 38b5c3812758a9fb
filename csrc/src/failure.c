/* Filling of struct lora_failure. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct lora_failure *lora_failure_begin(struct lora_failure *failure, struct lora_failure *spare) {
    if (!failure) failure = spare;
    memset(failure, 0, sizeof *failure);
    failure->size = sizeof *failure;
    failure->board = failure->bank = failure->port = -1;
    failure->peer_board = failure->peer_port = -1;
    failure->index = failure->opcode = failure->unit = LORA_NONE;
    failure->counter = failure->row = LORA_NONE;
    return failure;
}

int lora_fail(struct lora_failure *failure, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->message, sizeof failure->message, format, arguments);
    va_end(arguments);
    failure->code = (uint32_t)code;
    return code;
}

int lora_fail_gone(struct lora_failure *failure, const char *name, uint32_t value) {
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "%s reads 0x%x: the card has left the bus; reset it or the machine", name,
                     value);
}

/* Some transports name the board themselves. */
int lora_fail_board(const struct lora_cluster *cluster, uint32_t board, int status,
                    struct lora_failure *failure) {
    char said[sizeof failure->message];
    if (status == LORA_OK) return status;
    memcpy(said, failure->message, sizeof said);
    said[sizeof said - 1] = 0;
    if (!said[0]) snprintf(said, sizeof said, "transport reports %s", lora_status_name(status));
    failure->board = (int32_t)board;
    if (!strncmp(said, "board ", 6)) return lora_fail(failure, status, "%s", said);
    return lora_fail(failure, status, "board %u (%s): %s", board,
                     cluster->boards[board].info.address, said);
}

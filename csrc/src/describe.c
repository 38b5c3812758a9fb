/* A board's error record in one line. */
#include "internal.h"

#include <stdio.h>

static const char *what(uint32_t code) {
    switch (code) {
    case LORA_ERR_ABI: return "ABI number";
    case LORA_ERR_SIZE: return "size or count out of range";
    case LORA_ERR_CRC: return "list or table does not match its seal";
    case LORA_ERR_OPCODE: return "unknown opcode or operation";
    case LORA_ERR_ADDRESS: return "address outside every arena";
    case LORA_ERR_COUNTER: return "counter outside the list's, or never signalled";
    case LORA_ERR_LIST: return "list is not registered";
    case LORA_ERR_STEP: return "step number neither the next nor a redo";
    case LORA_ERR_ROW: return "row's field out of range";
    case LORA_ERR_KV: return "KV operation's field out of range";
    case LORA_ERR_WATCHDOG: return "did not finish before the watchdog";
    case LORA_ERR_LINK_POISON: return "stopped because another board failed the step";
    case LORA_ERR_UNIT: return "unit reports failure";
    case LORA_ERR_OPERATION: return "unknown control operation";
    case LORA_ERR_GATHERED: return "gathered rows differ from the other boards'";
    default: return lora_status_name((int)code);
    }
}

/* " command 17 (MATRIX)" where a command is concerned, else " row 3" or nothing. */
static void describe_where(const struct lora_error_record *error, char *text, size_t bytes) {
    if (error->index != LORA_NONE)
        snprintf(text, bytes, " command %u (%s)", error->index, lora_opcode_name(error->opcode));
    else if (error->unit < LORA_UNITS)
        snprintf(text, bytes, " unit %s", lora_unit_name(error->unit));
    else if (error->row != LORA_NONE) snprintf(text, bytes, " row %u", error->row);
    else text[0] = 0;
}

static void detail(const struct lora_error_record *error, char *text, size_t bytes) {
    text[0] = 0;
    switch (error->code) {
    case LORA_ERR_ADDRESS:
        snprintf(text, bytes, "bank %u offset 0x%llx", error->bank,
                 (unsigned long long)error->offset);
        break;
    case LORA_ERR_COUNTER:
    case LORA_ERR_WATCHDOG:
        if (error->counter != LORA_NONE)
            snprintf(text, bytes, "counter %u at %u, %u expected", error->counter, error->found,
                     error->expected);
        else if (error->unit < LORA_UNITS)
            snprintf(text, bytes, "unit %s", lora_unit_name(error->unit));
        break;
    case LORA_ERR_LINK_POISON: break;
    case LORA_ERR_GATHERED:
        snprintf(text, bytes, "0x%08x found, 0x%08x expected", error->found, error->expected);
        break;
    default:
        snprintf(text, bytes, "0x%x found, 0x%x expected", error->found, error->expected);
        break;
    }
}

static void copy_fields(const struct lora_error_record *error, uint32_t board,
                        struct lora_failure *failure) {
    failure->board = (int32_t)board;
    failure->code = error->code;
    failure->bank = error->bank <= LORA_BANK_ONCHIP ? (int32_t)error->bank : -1;
    failure->port = error->port < LORA_PORTS ? (int32_t)error->port : -1;
    failure->index = error->index;
    failure->opcode = error->opcode;
    failure->unit = error->unit;
    failure->counter = error->counter;
    failure->row = error->row;
    failure->found = error->found;
    failure->expected = error->expected;
    failure->offset = error->offset;
}

int lora_describe_error(const struct lora_cluster *cluster, uint32_t board,
                        struct lora_failure *failure) {
    const struct lora_board *it = &cluster->boards[board];
    const struct lora_error_record *error = &it->error;
    char where[64], numbers[96];
    if (error->size != sizeof *error || error->code == LORA_OK) {
        failure->board = (int32_t)board;
        return lora_fail(failure, LORA_ERR_COMPLETION,
                         "board %u (%s): failed with %s, but its error record is empty", board,
                         it->info.address, lora_status_name((int)it->completion.status));
    }
    copy_fields(error, board, failure);
    if (error->code == LORA_ERR_LINK_DOWN)
        return lora_fail_link(cluster, board, error->port, LORA_ERR_LINK_DOWN, failure,
                              "lost its channel during step %u", error->step);
    if (error->code == LORA_ERR_LINK_CRC)
        return lora_fail_link(cluster, board, error->port, LORA_ERR_LINK_CRC, failure,
                              "delivered a frame with a wrong CRC or header in step %u",
                              error->step);
    describe_where(error, where, sizeof where);
    detail(error, numbers, sizeof numbers);
    return lora_fail(failure, (int)error->code, "board %u (%s)%s: %s%s%s", board, it->info.address,
                     where, what(error->code), numbers[0] ? ": " : "", numbers);
}

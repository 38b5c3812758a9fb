#include "boardd.h"

#include <string.h>

int boardd_answer(struct wire_channel *channel, const struct wire_header *request, const void *data,
                  size_t bytes) {
    const struct wire_answer answer = {.status = LORA_OK};
    const struct wire_part parts[2] = {{&answer, sizeof answer}, {data, bytes}};
    return wire_put(channel, request->kind | WIRE_ANSWER, request->sequence, parts, 2);
}

int boardd_refuse(struct wire_channel *channel, const struct wire_header *request,
                  const struct lora_failure *failure) {
    const struct wire_answer answer = {.status = failure->code ? failure->code
                                                               : LORA_ERR_TRANSPORT};
    const struct wire_part parts[2] = {{&answer, sizeof answer}, {failure, sizeof *failure}};
    return wire_put(channel, request->kind | WIRE_ANSWER, request->sequence, parts, 2);
}

int boardd_blame(int status, struct lora_failure *failure) {
    char said[sizeof failure->message];
    memcpy(said, failure->message, sizeof said);
    said[sizeof said - 1] = '\0';
    return lora_fail(failure, status, "on the daemon's host: %s", said);
}

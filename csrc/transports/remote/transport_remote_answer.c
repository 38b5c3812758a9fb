/* What a daemon's answers say. */
#include "transport_remote.h"

#include <stdio.h>
#include <string.h>

int remote_gone(const struct remote_handle *remote, struct lora_failure *failure) {
    char why[200];
    snprintf(why, sizeof why, "the board daemon is gone: %.130s; see 'lora boardd status'",
             remote->channel.why[0] ? remote->channel.why : "no connection");
    return lora_fail(failure, LORA_ERR_TRANSPORT, "%s:%.100s: %.130s", remote->scheme, remote->uri,
                     why);
}

/* The daemon counts its boards in its own way: the number goes, the rest stays. */
static void rename_board(struct lora_failure *failure) {
    char *message = failure->message;
    message[sizeof failure->message - 1] = '\0';
    for (char *at = message; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) *at = '?';
    failure->board = failure->peer_board = -1;
    if (strncmp(message, "board ", 6)) return;
    size_t digits = strspn(message + 6, "0123456789");
    if (digits && !strncmp(message + 6 + digits, ": ", 2))
        memmove(message, message + 8 + digits, strlen(message + 8 + digits) + 1);
}

int remote_status(const struct wire_message *message, struct wire_part *data,
                  struct lora_failure *failure) {
    struct wire_answer answer;
    const size_t begin = sizeof answer;
    if (message->header.bytes < begin) goto malformed;
    memcpy(&answer, message->body, begin);
    if (!answer.status) {
        *data = (struct wire_part){message->body + begin, message->header.bytes - begin};
        return LORA_OK;
    }
    if (message->header.bytes != begin + sizeof *failure) goto malformed;
    memcpy(failure, message->body + begin, sizeof *failure);
    failure->size = sizeof *failure;
    failure->code = answer.status;
    rename_board(failure);
    return (int)answer.status;
malformed:
    return lora_fail(failure, LORA_ERR_TRANSPORT, "the board daemon's answer has %u B",
                     message->header.bytes);
}

void remote_forget_run(struct remote_handle *remote) {
    remote->run = REMOTE_IDLE;
    remote->arrived = 0;
}

void remote_take_run(struct remote_handle *remote, const struct wire_message *message) {
    struct wire_part data = {0};
    struct wire_ran ran = {0};
    lora_failure_begin(&remote->run_failure, NULL);
    remote->arrived = 0;
    remote->run = REMOTE_FAILED;
    if (remote_status(message, &data, &remote->run_failure)) return;
    if (data.bytes < sizeof ran || data.bytes - sizeof ran > WIRE_RANGES_BYTES) {
        lora_fail(&remote->run_failure, LORA_ERR_TRANSPORT, "the answer to a run has %zu B",
                  data.bytes);
        return;
    }
    memcpy(&ran, data.data, sizeof ran);
    uint64_t at = 0, whole = data.bytes - sizeof ran;
    for (uint32_t i = 0; i < remote->asked.count; i++) {
        uint64_t bytes = remote->asked.range[i].bytes;
        if (!(ran.ranges >> i & 1) || bytes > whole - at) continue;
        remote->result_at[i] = at;
        remote->arrived |= 1u << i;
        at += bytes;
    }
    memcpy(remote->results, (const uint8_t *)data.data + sizeof ran, whole);
    remote->run = REMOTE_RAN;
}

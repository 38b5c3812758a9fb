/* Requests and answers. */
#include "transport_remote.h"

#include <string.h>

int remote_send(struct remote_handle *remote, uint32_t kind, const struct wire_part *parts,
                uint32_t count, struct lora_failure *failure) {
    int status = wire_put(&remote->channel, kind, ++remote->sequence, parts, count);
    return status ? remote_gone(remote, failure) : LORA_OK;
}

int remote_await(struct remote_handle *remote, uint32_t sequence, uint64_t limit_us,
                 struct wire_part *data, struct lora_failure *failure) {
    struct wire_message message;
    uint64_t end = wire_now_us() + limit_us;
    if (wire_flush(&remote->channel)) return remote_gone(remote, failure);
    while (1) {
        uint64_t now = wire_now_us();
        int got = wire_get(&remote->channel, &message, now < end ? end - now : 0);
        if (got == WIRE_NOTHING)
            wire_fail(&remote->channel, "no answer within %.0f s", (double)limit_us / 1e6);
        if (got != WIRE_MESSAGE) return remote_gone(remote, failure);
        if (message.header.kind == (WIRE_ANSWER | WIRE_RUN) && remote->run == REMOTE_RUNNING &&
            message.header.sequence == remote->run_sequence)
            remote_take_run(remote, &message);
        else if (message.header.sequence == sequence) return remote_status(&message, data, failure);
        /* else the answer to a run that a reset has ended */
    }
}

int remote_call(struct remote_handle *remote, const struct remote_call *call,
                struct lora_failure *failure) {
    struct wire_part data = {0};
    int status = remote_send(remote, call->kind, call->parts, call->part_count, failure);
    if (!status)
        status = remote_await(remote, remote->sequence,
                              call->limit_us ? call->limit_us : REMOTE_ANSWER_US, &data, failure);
    if (status) return status;
    if (data.bytes != call->answer_bytes) {
        wire_fail(&remote->channel, "its answer to request %u has %zu B, %zu expected", call->kind,
                  data.bytes, call->answer_bytes);
        return remote_gone(remote, failure);
    }
    if (data.bytes) memcpy(call->answer, data.data, data.bytes);
    return LORA_OK;
}

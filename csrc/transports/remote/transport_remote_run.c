/* A run takes one round trip: what was written before it, its start, its end and what the host will
 * read then travel as one message each way. */
#define _GNU_SOURCE
#include "transport_remote.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#define LISTEN_US 500

/* The records of the control page first, then what was read after the last run. */
static void choose_ranges(struct remote_handle *remote, uint32_t control_bank) {
    struct remote_ranges *asked = &remote->asked;
    *asked = (struct remote_ranges){.count = 1, .bytes = LORA_RECORDS_BYTES};
    asked->range[0] = (struct wire_range){
        .bank = control_bank, .offset = LORA_COMPLETION_OFFSET, .bytes = LORA_RECORDS_BYTES};
    for (uint32_t i = 0; i < remote->noted.count; i++)
        asked->range[asked->count++] = remote->noted.range[i];
    remote->noted = (struct remote_ranges){0};
}

int remote_submit(void *handle, const uint32_t arguments[LORA_ARGUMENTS],
                  struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    pthread_mutex_lock(&remote->lock);
    choose_ranges(remote, arguments[LORA_ARGUMENTS - 1]);
    struct wire_run run = {.ranges = remote->asked.count};
    memcpy(run.arguments, arguments, sizeof run.arguments);
    memcpy(run.range, remote->asked.range, sizeof run.range);
    const struct wire_part part = {&run, sizeof run};
    int status = remote_send(remote, WIRE_RUN, &part, 1, failure);
    if (!status && wire_flush(&remote->channel)) status = remote_gone(remote, failure);
    remote->arrived = 0;
    remote->run = status ? REMOTE_IDLE : REMOTE_RUNNING;
    remote->run_sequence = remote->sequence;
    lora_count(&remote->counts.register_writes);
    pthread_mutex_unlock(&remote->lock);
    return status;
}

/* What has arrived by now. */
static int look_for_answer(struct remote_handle *remote, struct lora_failure *failure) {
    struct wire_message message;
    while (remote->run == REMOTE_RUNNING) {
        int got = wire_get(&remote->channel, &message, 0);
        if (got == WIRE_DEAD) return remote_gone(remote, failure);
        if (got == WIRE_NOTHING) return LORA_OK;
        if (message.header.kind == (WIRE_ANSWER | WIRE_RUN) &&
            message.header.sequence == remote->run_sequence)
            remote_take_run(remote, &message);
    }
    return LORA_OK;
}

static int ask_state(struct remote_handle *remote, uint32_t *run_state,
                     struct lora_failure *failure) {
    const struct remote_call call = {
        .kind = WIRE_POLL, .answer = run_state, .answer_bytes = sizeof *run_state};
    return remote_call(remote, &call, failure);
}

int remote_poll(void *handle, uint32_t *run_state, struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    pthread_mutex_lock(&remote->lock);
    int status = LORA_OK;
    *run_state = LORA_RUN_BUSY;
    lora_count(&remote->counts.register_reads);
    if (remote->run == REMOTE_IDLE) status = ask_state(remote, run_state, failure);
    else status = look_for_answer(remote, failure);
    if (remote->run == REMOTE_FAILED) {
        *failure = remote->run_failure;
        status = (int)failure->code;
    }
    if (remote->run == REMOTE_RAN) *run_state = LORA_RUN_DONE;
    if (remote->run != REMOTE_RUNNING) remote->run = REMOTE_IDLE;
    pthread_mutex_unlock(&remote->lock);
    return status;
}

/* Ends early when the daemon has something to say, so a short pause would only cost the boards a
 * core. */
int remote_sleep(void *handle, uint32_t microseconds, struct lora_failure *failure) {
    struct remote_handle *remote = handle;
    pthread_mutex_lock(&remote->lock);
    struct pollfd at = {.fd = remote->channel.socket, .events = POLLIN};
    int waits = remote->run == REMOTE_RUNNING;
    if (waits && microseconds < LISTEN_US) microseconds = LISTEN_US;
    const struct timespec time = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    int status = remote->channel.socket < 0 || wire_flush(&remote->channel)
                     ? remote_gone(remote, failure)
                     : LORA_OK;
    pthread_mutex_unlock(&remote->lock);
    if (status) return status;
    if (waits) ppoll(&at, 1, &time, NULL);
    else nanosleep(&time, NULL);
    return LORA_OK;
}

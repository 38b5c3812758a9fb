/* Runs of a board: started, polled, and answered with what the host will read. */
#define _GNU_SOURCE
#include "boardd.h"

#include <string.h>
#include <time.h>

#define SETTLE_US 5000000u

int boardd_start(struct boardd_session *session, const struct wire_run *run,
                 struct lora_failure *failure) {
    int status = boardd_check_programmed(session, failure);
    if (!status && session->running)
        status = lora_fail(failure, LORA_ERR_TRANSPORT, "%.40s: a run is in flight",
                           session->board->name);
    if (!status && run->arguments[WIRE_ARGUMENTS - 1] >= session->info.bank_count)
        status = lora_fail(failure, LORA_ERR_ARGUMENT, "%.40s: control bank %u of %u banks",
                           session->board->name, run->arguments[WIRE_ARGUMENTS - 1],
                           session->info.bank_count);
    if (!status) status = session->transport->submit(session->handle, run->arguments, failure);
    if (status) return status;
    session->run = *run;
    session->running = true;
    session->run_began_us = wire_now_us();
    atomic_store(&session->board->busy, 1);
    return LORA_OK;
}

/* A poll of an emulated board would run it to its end, whatever the host has to say meanwhile. */
static int poll_emulated(struct boardd_session *session, uint32_t *state,
                         struct lora_failure *failure) {
    uint32_t control = 0;
    boardd_run_emulated(session->boardd, session->board->emulated);
    int status = session->transport->register_read(session->handle, LORA_BLOCK_CONTROL,
                                                   LORA_REG_AP_CTRL, &control, failure);
    *state = control & LORA_AP_DONE ? LORA_RUN_DONE : LORA_RUN_BUSY;
    return status;
}

int boardd_poll(struct boardd_session *session, uint32_t *state, struct lora_failure *failure) {
    if (session->board->emulated) return poll_emulated(session, state, failure);
    return session->transport->poll(session->handle, state, failure);
}

/* Ranges that cannot be read are left out: the host asks for them and gets the reason. */
static size_t read_ranges(struct boardd_session *session, struct wire_ran *ran) {
    struct lora_failure ignored;
    size_t used = 0;
    for (uint32_t i = 0; i < session->run.ranges; i++) {
        const struct wire_range *range = &session->run.range[i];
        lora_failure_begin(&ignored, NULL);
        if (range->bytes > WIRE_RANGES_BYTES - used ||
            boardd_check_range(session, range, &ignored) ||
            session->transport->memory_read(session->handle, range->bank, range->offset,
                                            session->data + used, range->bytes, &ignored))
            continue;
        ran->ranges |= 1u << i;
        used += range->bytes;
    }
    return used;
}

static int answer_run(struct boardd_session *session) {
    const struct wire_answer answer = {.status = LORA_OK};
    struct wire_ran ran = {0};
    size_t used = read_ranges(session, &ran);
    const struct wire_part parts[3] = {
        {&answer, sizeof answer}, {&ran, sizeof ran}, {session->data, used}};
    return wire_put(&session->channel, WIRE_RUN | WIRE_ANSWER, session->run_sequence, parts, 3);
}

static void end_run(struct boardd_session *session) {
    session->running = false;
    atomic_store(&session->board->busy, 0);
}

bool boardd_follow(struct boardd_session *session) {
    struct lora_failure failure;
    uint32_t state = LORA_RUN_BUSY;
    const struct wire_header request = {.kind = WIRE_RUN, .sequence = session->run_sequence};
    lora_failure_begin(&failure, NULL);
    int status = boardd_poll(session, &state, &failure);
    if (!status && state == LORA_RUN_BUSY) return true;
    end_run(session);
    int sent = status ? boardd_refuse(&session->channel, &request, &failure) : answer_run(session);
    return !sent && !wire_flush(&session->channel);
}

void boardd_settle(struct boardd_session *session) {
    struct lora_failure failure;
    uint64_t end = wire_now_us() + SETTLE_US;
    const struct timespec pause = {0, 200000};
    uint32_t state = LORA_RUN_BUSY;
    lora_failure_begin(&failure, NULL);
    /* Nobody waits for an emulated board's results, and its reset takes no time. */
    bool waits = session->running && !session->board->emulated;
    while (waits && state == LORA_RUN_BUSY && wire_now_us() < end) {
        if (boardd_poll(session, &state, &failure)) break;
        nanosleep(&pause, NULL);
    }
    if (session->board->emulated || (waits && state == LORA_RUN_BUSY))
        session->transport->reset(session->handle, &failure);
    end_run(session);
}

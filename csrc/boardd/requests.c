/* The requests of a host that holds a board. A message of a wrong size or kind ends the session. */
#include "boardd.h"

#include <string.h>

struct request { /* one message, its fixed part behind it */
    struct boardd_session *session;
    const struct wire_header *header;
    const uint8_t *body, *data; /* data: behind the fixed part */
    size_t bytes;               /* of the data */
    const void *answer;
    size_t answer_bytes;
    union {
        uint32_t word;
        uint64_t base;
        struct lora_board_info info;
        struct lora_accesses accesses;
    } kept;
};

static void answer_with(struct request *request, const void *data, size_t bytes) {
    request->answer = data;
    request->answer_bytes = bytes;
}

static int take_info(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct lora_board_info *info = &request->kept.info;
    *info = (struct lora_board_info){.size = sizeof *info};
    answer_with(request, info, sizeof *info);
    return session->transport->info(session->handle, info, failure);
}

static int take_container(struct request *request, struct lora_failure *failure) {
    return boardd_container_add(request->session, request->data, request->bytes, failure);
}

static int take_program(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct wire_program asked;
    memcpy(&asked, request->body, sizeof asked);
    if (asked.container_bytes != session->container_bytes)
        return lora_fail(failure, LORA_ERR_OVERLAY, "a container of %llu B was sent, %llu expected",
                         (unsigned long long)session->container_bytes,
                         (unsigned long long)asked.container_bytes);
    if (session->running || session->arena_count)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "%.40s: a run or %u arenas are there; load the overlay before",
                         session->board->name, session->arena_count);
    struct lora_program program = {.size = sizeof program,
                                   .board_kind = asked.board_kind,
                                   .abi = asked.abi,
                                   .onchip_bytes = asked.onchip_bytes,
                                   .image = request->data,
                                   .image_bytes = request->bytes,
                                   .container = session->container < 0 ? NULL
                                                                       : session->container_path,
                                   .clock_hz = asked.clock_hz};
    memcpy(program.block_base, asked.block_base, sizeof program.block_base);
    int status = session->transport->program(session->handle, &program, failure);
    if (!status) status = session->transport->info(session->handle, &session->info, failure);
    session->programmed = !status;
    boardd_container_drop(session);
    return status == LORA_ERR_TRANSPORT ? boardd_blame(status, failure) : status;
}

static int take_reserve(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct wire_range range;
    memcpy(&range, request->body, sizeof range);
    int status = boardd_check_programmed(session, failure);
    if (!status) status = boardd_check_arena(session, &range, failure);
    if (!status)
        status = session->transport->reserve(session->handle, range.bank, range.offset, range.bytes,
                                             &request->kept.base, failure);
    if (status) return status;
    session->arenas[session->arena_count++] = (struct lora_arena){range.bank, range.offset,
                                                                  range.bytes, request->kept.base};
    answer_with(request, &request->kept.base, sizeof request->kept.base);
    return LORA_OK;
}

static int take_release(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct wire_range range;
    memcpy(&range, request->body, sizeof range);
    for (uint32_t a = 0; a < session->arena_count; a++) {
        if (session->arenas[a].bank != range.bank || session->arenas[a].offset != range.offset)
            continue;
        session->arenas[a] = session->arenas[--session->arena_count];
        return session->transport->release(session->handle, range.bank, range.offset, failure);
    }
    return lora_fail(failure, LORA_ERR_RANGE, "%.40s bank %u: no arena begins at 0x%llx",
                     session->board->name, range.bank, (unsigned long long)range.offset);
}

static int take_register_read(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct wire_register asked;
    memcpy(&asked, request->body, sizeof asked);
    answer_with(request, &request->kept.word, sizeof request->kept.word);
    int status = boardd_check_register(session, asked.block, asked.offset, failure);
    if (status) return status;
    return session->transport->register_read(session->handle, asked.block, asked.offset,
                                             &request->kept.word, failure);
}

static int take_register_write(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct wire_register asked;
    memcpy(&asked, request->body, sizeof asked);
    int status = boardd_check_register(session, asked.block, asked.offset, failure);
    if (status) return status;
    return session->transport->register_write(session->handle, asked.block, asked.offset,
                                              asked.value, failure);
}

static int take_read(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct wire_range range;
    memcpy(&range, request->body, sizeof range);
    int status = boardd_check_range(session, &range, failure);
    if (!status && range.bytes > WIRE_DATA)
        status = lora_fail(failure, LORA_ERR_ARGUMENT, "%llu B asked for, at most %u at once",
                           (unsigned long long)range.bytes, WIRE_DATA);
    if (status) return status;
    answer_with(request, session->data, range.bytes);
    return session->transport->memory_read(session->handle, range.bank, range.offset, session->data,
                                           range.bytes, failure);
}

static int take_write(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    struct wire_range range;
    memcpy(&range, request->body, sizeof range);
    if (range.bytes != request->bytes)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "a write of %llu B came with %zu B",
                         (unsigned long long)range.bytes, request->bytes);
    int status = boardd_check_range(session, &range, failure);
    if (status) return status;
    return session->transport->memory_write(session->handle, range.bank, range.offset,
                                            request->data, range.bytes, failure);
}

/* Its answer comes when it is over; only a refusal is told now. */
static int take_run(struct request *request, struct lora_failure *failure) {
    struct wire_run run;
    memcpy(&run, request->body, sizeof run);
    if (run.ranges > WIRE_RANGES)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "%u ranges, at most %d expected", run.ranges,
                         WIRE_RANGES);
    int status = boardd_start(request->session, &run, failure);
    if (!status) request->session->run_sequence = request->header->sequence;
    return status;
}

static int take_poll(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    answer_with(request, &request->kept.word, sizeof request->kept.word);
    request->kept.word = LORA_RUN_BUSY;
    int status = boardd_check_programmed(session, failure);
    if (status || session->running) return status;
    return boardd_poll(session, &request->kept.word, failure);
}

static int take_poll_register(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    uint32_t offset;
    memcpy(&offset, request->body, sizeof offset);
    answer_with(request, &request->kept.word, sizeof request->kept.word);
    int status = boardd_check_register(session, LORA_BLOCK_CONTROL, offset, failure);
    if (status) return status;
    return session->transport->poll_register(session->handle, offset, &request->kept.word, failure);
}

static int take_reset(struct request *request, struct lora_failure *failure) {
    struct boardd_session *session = request->session;
    session->running = session->programmed = false;
    session->arena_count = 0;
    atomic_store(&session->board->busy, 0);
    boardd_container_drop(session);
    return session->transport->reset(session->handle, failure);
}

static int take_accesses(struct request *request, struct lora_failure *failure) {
    (void)failure;
    request->session->transport->accesses(request->session->handle, &request->kept.accesses);
    answer_with(request, &request->kept.accesses, sizeof request->kept.accesses);
    return LORA_OK;
}

static int take_flush(struct request *request, struct lora_failure *failure) {
    (void)request, (void)failure;
    return LORA_OK;
}

enum manner { ANSWERED, LATER, SILENT };

static const struct {
    int (*take)(struct request *, struct lora_failure *);
    uint32_t bytes; /* of the fixed part */
    uint32_t more;  /* data may follow it */
    enum manner manner;
} requests[] = {
    [WIRE_INFO] = {take_info, 0, 0, ANSWERED},
    [WIRE_CONTAINER] = {take_container, 0, 1, SILENT},
    [WIRE_PROGRAM] = {take_program, sizeof(struct wire_program), 1, ANSWERED},
    [WIRE_RESERVE] = {take_reserve, sizeof(struct wire_range), 0, ANSWERED},
    [WIRE_RELEASE] = {take_release, sizeof(struct wire_range), 0, ANSWERED},
    [WIRE_REGISTER_READ] = {take_register_read, sizeof(struct wire_register), 0, ANSWERED},
    [WIRE_REGISTER_WRITE] = {take_register_write, sizeof(struct wire_register), 0, SILENT},
    [WIRE_READ] = {take_read, sizeof(struct wire_range), 0, ANSWERED},
    [WIRE_WRITE] = {take_write, sizeof(struct wire_range), 1, SILENT},
    [WIRE_RUN] = {take_run, sizeof(struct wire_run), 0, LATER},
    [WIRE_POLL] = {take_poll, 0, 0, ANSWERED},
    [WIRE_POLL_REGISTER] = {take_poll_register, sizeof(uint32_t), 0, ANSWERED},
    [WIRE_RESET] = {take_reset, 0, 0, ANSWERED},
    [WIRE_ACCESSES] = {take_accesses, 0, 0, ANSWERED},
    [WIRE_FLUSH] = {take_flush, 0, 0, ANSWERED},
};

/* The first failure of what had no answer is told in place of the next answer; a reset ends it. */
static int run_request(struct request *request, uint32_t kind, struct lora_failure *failure) {
    struct lora_failure *kept = &request->session->kept;
    if (requests[kind].manner == SILENT) {
        int status = kept->code ? LORA_OK : requests[kind].take(request, failure);
        if (status) *kept = *failure;
        return LORA_OK;
    }
    if (kept->code && kind != WIRE_RESET) {
        *failure = *kept;
        kept->code = LORA_OK;
        return (int)failure->code;
    }
    kept->code = LORA_OK;
    return requests[kind].take(request, failure);
}

bool boardd_request(struct boardd_session *session, const struct wire_message *message) {
    const uint32_t kind = message->header.kind, bytes = message->header.bytes;
    struct lora_failure failure;
    if (kind >= sizeof requests / sizeof requests[0] || !requests[kind].take) return false;
    uint32_t fixed = requests[kind].bytes;
    if (bytes < fixed || (bytes > fixed && !requests[kind].more)) return false;
    struct request request = {.session = session,
                              .header = &message->header,
                              .body = message->body,
                              .data = message->body + fixed,
                              .bytes = bytes - fixed};
    lora_failure_begin(&failure, NULL);
    int status = run_request(&request, kind, &failure);
    if (status) {
        failure.code = (uint32_t)status;
        return !boardd_refuse(&session->channel, &message->header, &failure);
    }
    if (requests[kind].manner != ANSWERED) return true;
    return !boardd_answer(&session->channel, &message->header, request.answer,
                          request.answer_bytes);
}

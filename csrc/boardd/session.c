/* A connected host and its board, from the welcome until the connection ends in any way. */
#define _GNU_SOURCE
#include "boardd.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define IDLE_US 200000 /* between two looks at whether the daemon is to stop */
#define SLACK_NS 1000  /* a run's end is awaited in pauses of microseconds */

static int open_board(struct boardd_session *session, struct lora_failure *failure) {
    const char *address = NULL;
    int status = lora_transport_find(session->board->uri, &session->transport, &address, failure);
    if (!status) status = session->transport->open(address, &session->handle, failure);
    if (status) return status;
    session->info.size = sizeof session->info;
    return session->transport->info(session->handle, &session->info, failure);
}

static void close_board(struct boardd_session *session) {
    struct lora_failure ignored;
    if (!session->handle) return;
    boardd_settle(session);
    /* an emulated board's reset has released all */
    for (uint32_t a = session->board->emulated ? 0 : session->arena_count; a-- > 0;)
        session->transport->release(session->handle, session->arenas[a].bank,
                                    session->arenas[a].offset, lora_failure_begin(NULL, &ignored));
    session->transport->close(session->handle);
}

static uint64_t pause_of(const struct boardd_session *session) {
    if (!session->running) return IDLE_US;
    uint64_t waited = wire_now_us() - session->run_began_us;
    uint64_t pause = waited / 64;
    return pause < 5 ? 5 : pause > 1000 ? 1000 : pause;
}

/* What has arrived is done before anything is waited for; answers leave together. */
static void serve(struct boardd_session *session) {
    struct wire_message message;
    while (!atomic_load(&session->boardd->stopping)) {
        int got = wire_get(&session->channel, &message, 0);
        if (got == WIRE_MESSAGE) {
            if (!boardd_request(session, &message)) return;
            continue;
        }
        if (got == WIRE_DEAD || wire_flush(&session->channel)) return;
        if (session->running && !boardd_follow(session)) return;
        wire_wait(&session->channel, -1, pause_of(session));
    }
}

static bool welcome(struct boardd_session *session, const struct wire_hello *hello,
                    uint32_t sequence, const char *who) {
    const struct wire_header request = {.kind = WIRE_HELLO, .sequence = sequence};
    const struct wire_welcome welcome = {.version = WIRE_VERSION, .abi = LORA_ABI_NUMBER};
    struct lora_boardd *boardd = session->boardd;
    struct lora_failure failure;
    lora_failure_begin(&failure, NULL);
    struct boardd_board *board = boardd_find(boardd, hello->board);
    int status = LORA_OK;
    if (!board)
        status = lora_fail(&failure, LORA_ERR_URI,
                           "the daemon has no board %.60s; see 'lora boardd status'", hello->board);
    if (!status) status = boardd_hold(boardd, board, who, &failure);
    if (!status) session->board = board;
    if (!status && (status = open_board(session, &failure))) boardd_blame(status, &failure);
    if (!status) return !boardd_answer(&session->channel, &request, &welcome, sizeof welcome);
    failure.code = (uint32_t)status;
    boardd_refuse(&session->channel, &request, &failure);
    wire_flush(&session->channel);
    return false;
}

void boardd_host(struct lora_boardd *boardd, struct wire_channel *channel,
                 const struct wire_hello *hello, uint32_t sequence, const char *who) {
    struct boardd_session *session = calloc(1, sizeof *session);
    uint8_t *data = malloc(WIRE_DATA);
    if (!session || !data || !wire_allow(channel, WIRE_BODY)) {
        free(data);
        free(session);
        return;
    }
    prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    session->boardd = boardd;
    session->channel = *channel;
    session->data = data;
    session->container = -1;
    if (welcome(session, hello, sequence, who)) serve(session);
    if (session->board) {
        boardd_leave(boardd, session->board);
        close_board(session);
        boardd_free(boardd, session->board);
    }
    boardd_container_drop(session);
    *channel = session->channel;
    free(data);
    free(session);
}

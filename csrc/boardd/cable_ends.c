/* Both ways to begin a cable: another daemon connects, or this one does. */
#define _GNU_SOURCE
#include "boardd.h"

#include <stdio.h>
#include <string.h>

#include "address.h"

#define CONNECT_US 5000000u

void boardd_cable_serve(struct lora_boardd *boardd, struct wire_channel *channel,
                        const struct wire_hello *hello, uint32_t sequence) {
    const struct wire_header request = {.kind = WIRE_HELLO, .sequence = sequence};
    const struct wire_welcome welcome = {.version = WIRE_VERSION, .abi = LORA_ABI_NUMBER};
    struct lora_failure failure;
    lora_failure_begin(&failure, NULL);
    const struct boardd_board *board = boardd_find(boardd, hello->board);
    struct boardd_cable *cable = NULL;
    if (!board) lora_fail(&failure, LORA_ERR_URI, "the daemon has no board %.60s", hello->board);
    else cable = boardd_cable_begin(board, hello->port, &failure);
    if (!cable) {
        if (!boardd_refuse(channel, &request, &failure)) wire_flush(channel);
        return;
    }
    if (wire_allow(channel, WIRE_BODY) &&
        !boardd_answer(channel, &request, &welcome, sizeof welcome) && !wire_flush(channel))
        boardd_cable_run(boardd, cable, channel);
    boardd_cable_end(cable);
}

static int secure(const struct lora_boardd *boardd, struct wire_channel *channel,
                  const struct wire_address *to, struct lora_failure *failure) {
    char why[WIRE_TLS_WHY];
    struct wire_tls *tls = boardd->keys[0] ? wire_tls_new(boardd->keys, 0, why) : NULL;
    if (!tls)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "%.150s",
                         boardd->keys[0] ? why : "a cable over TCP needs --keys");
    channel->tls = wire_tls_begin(tls, channel->socket, to->host, CONNECT_US, why);
    wire_tls_free(tls); /* the session keeps what it needs */
    return channel->tls ? LORA_OK : lora_fail(failure, LORA_ERR_TRANSPORT, "%.150s", why);
}

static int refused(const struct wire_message *message, struct lora_failure *failure) {
    struct wire_answer answer;
    if (message->header.bytes < sizeof answer)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "no answer of a board daemon");
    memcpy(&answer, message->body, sizeof answer);
    if (!answer.status) return LORA_OK;
    if (message->header.bytes == sizeof answer + sizeof *failure)
        memcpy(failure, message->body + sizeof answer, sizeof *failure);
    failure->message[sizeof failure->message - 1] = '\0';
    return (int)(failure->code = answer.status);
}

static int greet(const struct lora_boardd *boardd, struct wire_channel *channel,
                 const struct wire_address *to, uint32_t far_port, struct lora_failure *failure) {
    struct wire_message message;
    struct wire_hello hello = {
        .version = WIRE_VERSION, .abi = LORA_ABI_NUMBER, .role = WIRE_ROLE_CABLE, .port = far_port};
    if (to->host[0]) memcpy(hello.token, boardd->token, sizeof hello.token);
    memcpy(hello.board, to->board, sizeof hello.board);
    snprintf(hello.who, sizeof hello.who, "a board daemon");
    const struct wire_part part = {&hello, sizeof hello};
    if (wire_put(channel, WIRE_HELLO, 1, &part, 1) || wire_flush(channel) ||
        wire_get(channel, &message, CONNECT_US) != WIRE_MESSAGE)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "no answer of a board daemon");
    return refused(&message, failure);
}

static int dial(const struct lora_boardd *boardd, struct wire_channel *channel,
                const struct wire_address *to, uint32_t far_port, struct lora_failure *failure) {
    char why[WIRE_WHY];
    int made = wire_connect(to, CONNECT_US, why);
    if (made < 0) return lora_fail(failure, LORA_ERR_TRANSPORT, "%.150s", why);
    if (!wire_open(channel, made)) return lora_fail(failure, LORA_ERR_MEMORY, "no host memory");
    int status = to->host[0] ? secure(boardd, channel, to, failure) : LORA_OK;
    if (!status) status = greet(boardd, channel, to, far_port, failure);
    if (!status && !wire_allow(channel, WIRE_BODY))
        status = lora_fail(failure, LORA_ERR_MEMORY, "no host memory");
    return status;
}

static bool parse(const char *uri, struct wire_address *to) {
    if (!strncmp(uri, "tcp:", 4)) return wire_parse_tcp(uri + 4, to) && to->board[0];
    return !strncmp(uri, "unix:", 5) && wire_parse_unix(uri + 5, to) && to->board[0];
}

int lora_boardd_cable(struct lora_boardd *boardd, uint32_t board, uint32_t port, const char *uri,
                      uint32_t far_port, struct lora_failure *failure) {
    struct lora_failure spare;
    struct wire_address to;
    struct wire_channel channel = {.socket = -1};
    failure = lora_failure_begin(failure, &spare);
    if (board >= boardd->board_count || !parse(uri, &to))
        return lora_fail(failure, LORA_ERR_URI, "cable to %.100s: no board of a daemon", uri);
    int status = dial(boardd, &channel, &to, far_port, failure);
    struct boardd_cable *cable = NULL;
    if (!status) cable = boardd_cable_begin(&boardd->boards[board], port, failure);
    if (cable) {
        boardd_cable_run(boardd, cable, &channel);
        boardd_cable_end(cable);
    }
    wire_close(&channel);
    return status ? status : (int)failure->code;
}

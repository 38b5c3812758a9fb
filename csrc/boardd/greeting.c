/* Who connects: TLS, versions, token, users. Nothing is held, and little memory taken, before. */
#define _GNU_SOURCE
#include "boardd.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_allowed(const struct lora_boardd *boardd, uint32_t user) {
    if (user == 0 || user == geteuid()) return true;
    for (uint32_t i = 0; i < boardd->user_count; i++)
        if (boardd->users[i] == user) return true;
    return false;
}

/* Whether the socket is local, and what is known of its other end. */
static bool is_local(int socket, char peer[WIRE_NAME], uint32_t *user) {
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    char host[INET6_ADDRSTRLEN + 16] = "unknown", port[8] = "0";
    snprintf(peer, WIRE_NAME, "unknown");
    if (getpeername(socket, (struct sockaddr *)&address, &bytes)) return false;
    if (address.ss_family == AF_UNIX) {
        struct ucred found = {.uid = ~0u};
        bytes = sizeof found;
        getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &bytes);
        *user = found.uid;
        snprintf(peer, WIRE_NAME, "user %u, process %d", found.uid, found.pid);
        return true;
    }
    getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(peer, WIRE_NAME, "%.50s port %s", host, port);
    return false;
}

/* The time that it takes tells nothing of the token. */
static bool same_token(const char *found, const char *expected) {
    uint32_t different = 0;
    for (size_t i = 0; i < WIRE_TOKEN; i++) different |= (uint32_t)(found[i] ^ expected[i]);
    return different == 0 && expected[0];
}

static void make_printable(char *text, size_t room) {
    text[room - 1] = '\0';
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
}

static int check(const struct lora_boardd *boardd, const struct wire_message *message,
                 struct wire_hello *hello, bool local, struct lora_failure *failure) {
    uint32_t versions[2] = {0};
    if (message->header.kind != WIRE_HELLO || message->header.bytes < sizeof versions)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "a greeting was expected first");
    memcpy(versions, message->body, sizeof versions);
    failure->found = versions[0];
    failure->expected = WIRE_VERSION;
    if (versions[0] != WIRE_VERSION || versions[1] != LORA_ABI_NUMBER)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "version %u with ABI %u found, this daemon speaks %d with ABI %d; install "
                         "the same release on both hosts",
                         versions[0], versions[1], WIRE_VERSION, LORA_ABI_NUMBER);
    if (message->header.bytes != sizeof *hello)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "a greeting of %u B found, %zu expected",
                         message->header.bytes, sizeof *hello);
    memcpy(hello, message->body, sizeof *hello);
    hello->token[WIRE_TOKEN - 1] = '\0';
    make_printable(hello->board, sizeof hello->board);
    make_printable(hello->who, sizeof hello->who);
    char padded[WIRE_TOKEN] = "";
    snprintf(padded, sizeof padded, "%s", hello->token);
    if (!local && !same_token(padded, boardd->token))
        return lora_fail(
            failure, LORA_ERR_TRANSPORT,
            "the token is not this daemon's; copy it from the folder that 'lora boardd "
            "init' wrote");
    return LORA_OK;
}

static bool begin_tls(const struct lora_boardd *boardd, struct wire_channel *channel) {
    char why[WIRE_TLS_WHY];
    if (!boardd->tls) return false;
    channel->tls = wire_tls_begin(boardd->tls, channel->socket, NULL, BOARDD_GREETING_US, why);
    return channel->tls != NULL;
}

bool boardd_greeting(struct lora_boardd *boardd, struct wire_channel *channel,
                     struct wire_hello *hello, uint32_t *sequence, char who[2 * WIRE_NAME]) {
    struct wire_message message;
    struct lora_failure failure;
    char peer[WIRE_NAME];
    uint32_t user = ~0u;
    lora_failure_begin(&failure, NULL);
    bool local = is_local(channel->socket, peer, &user);
    if (local && !is_allowed(boardd, user)) return false;
    if (!local && !begin_tls(boardd, channel)) return false;
    if (wire_get(channel, &message, BOARDD_GREETING_US) != WIRE_MESSAGE) return false;
    *sequence = message.header.sequence;
    if (!check(boardd, &message, hello, local, &failure)) {
        snprintf(who, 2 * WIRE_NAME, "%.60s (%.60s)", hello->who, peer);
        return true;
    }
    message.header.kind = WIRE_HELLO;
    boardd_refuse(channel, &message.header, &failure);
    wire_flush(channel);
    return false;
}

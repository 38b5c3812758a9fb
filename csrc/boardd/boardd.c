/* The daemon: its boards and keys, and what becomes of a connection. */
#include "boardd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"

static int take_board(struct boardd_board *board, const struct lora_boardd_board *given,
                      struct lora_failure *failure) {
    if (!given->name || !given->uri || strlen(given->name) >= sizeof board->name ||
        strlen(given->uri) >= sizeof board->uri)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "board %.60s: no name, or a URI too long",
                         given->name ? given->name : "");
    if (!strncmp(given->uri, "tcp:", 4) || !strncmp(given->uri, "unix:", 5))
        return lora_fail(failure, LORA_ERR_URI, "board %.60s: another daemon's board", given->uri);
    strcpy(board->name, given->name);
    strcpy(board->uri, given->uri);
    board->emulated = given->emulated;
    board->index = given->index;
    return LORA_OK;
}

static int take_config(struct lora_boardd *boardd, const struct lora_boardd_config *config,
                       struct lora_failure *failure) {
    char why[WIRE_TLS_WHY];
    int status = LORA_OK;
    for (uint32_t b = 0; b < config->board_count && !status; b++)
        status = take_board(&boardd->boards[b], &config->boards[b], failure);
    if (status) return status;
    boardd->board_count = config->board_count;
    boardd->speed = config->speed ? config->speed : 1;
    snprintf(boardd->folder, sizeof boardd->folder, "%s", config->folder ? config->folder : "/");
    snprintf(boardd->token, sizeof boardd->token, "%s", config->token ? config->token : "");
    boardd->user_count = config->user_count;
    if (config->user_count)
        memcpy(boardd->users, config->users, config->user_count * sizeof boardd->users[0]);
    if (!config->keys) return LORA_OK;
    snprintf(boardd->keys, sizeof boardd->keys, "%s", config->keys);
    boardd->tls = wire_tls_new(config->keys, 1, why);
    if (boardd->tls) return LORA_OK;
    return lora_fail(failure, LORA_ERR_TRANSPORT, "board daemon: %s", why);
}

static int check(const struct lora_boardd_config *config, struct lora_failure *failure) {
    if (!config || config->size != sizeof *config)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "board daemon: no configuration of %zu B",
                         sizeof *config);
    if (!config->board_count || config->board_count > BOARDD_BOARDS || !config->boards ||
        config->user_count > BOARDD_USERS || (config->user_count && !config->users))
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "board daemon: %u boards and %u users; 1..%d and at most %d expected",
                         config->board_count, config->user_count, BOARDD_BOARDS, BOARDD_USERS);
    if (config->keys &&
        (!config->token || strlen(config->token) < 32 || strlen(config->token) >= WIRE_TOKEN))
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "board daemon: a token of 32 to %d characters expected", WIRE_TOKEN - 1);
    return LORA_OK;
}

int lora_boardd_create(const struct lora_boardd_config *config, struct lora_boardd **made,
                       struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = check(config, failure);
    if (status) return status;
    struct lora_boardd *boardd = calloc(1, sizeof *boardd);
    if (!boardd) return lora_fail(failure, LORA_ERR_MEMORY, "no host memory for a board daemon");
    pthread_mutex_init(&boardd->lock, NULL);
    pthread_mutex_init(&boardd->emulating, NULL);
    pthread_cond_init(&boardd->freed, NULL);
    status = take_config(boardd, config, failure);
    if (!status && !boardd_drive(boardd))
        status = lora_fail(failure, LORA_ERR_MEMORY, "no thread for the emulated boards' time");
    if (status) lora_boardd_destroy(boardd);
    else *made = boardd;
    return status;
}

static void tell_states(struct lora_boardd *boardd, struct wire_channel *channel,
                        uint32_t sequence) {
    struct lora_boardd_state states[BOARDD_BOARDS];
    const struct wire_header request = {.kind = WIRE_STATUS, .sequence = sequence};
    uint32_t count = lora_boardd_states(boardd, states, BOARDD_BOARDS);
    if (!boardd_answer(channel, &request, states, count * sizeof states[0])) wire_flush(channel);
}

static void refuse_role(struct wire_channel *channel, uint32_t role, uint32_t sequence) {
    const struct wire_header request = {.kind = WIRE_HELLO, .sequence = sequence};
    struct lora_failure failure;
    lora_failure_begin(&failure, NULL);
    lora_fail(&failure, LORA_ERR_ARGUMENT, "role %u is not known", role);
    if (!boardd_refuse(channel, &request, &failure)) wire_flush(channel);
}

int lora_boardd_serve(struct lora_boardd *boardd, int socket) {
    struct wire_channel channel;
    struct wire_hello hello;
    char who[2 * WIRE_NAME];
    uint32_t sequence;
    if (!wire_open(&channel, socket)) return 0;
    wire_tune(socket);
    bool known = boardd_greeting(boardd, &channel, &hello, &sequence, who);
    if (known && hello.role == WIRE_ROLE_BOARD)
        boardd_host(boardd, &channel, &hello, sequence, who);
    else if (known && hello.role == WIRE_ROLE_STATUS) tell_states(boardd, &channel, sequence);
    else if (known && hello.role == WIRE_ROLE_CABLE)
        boardd_cable_serve(boardd, &channel, &hello, sequence);
    else if (known) refuse_role(&channel, hello.role, sequence);
    wire_close(&channel);
    return known;
}

void lora_boardd_stop(struct lora_boardd *boardd) { atomic_store(&boardd->stopping, true); }

void lora_boardd_destroy(struct lora_boardd *boardd) {
    if (!boardd) return;
    lora_boardd_stop(boardd);
    if (boardd->driving) pthread_join(boardd->driver, NULL);
    wire_tls_free(boardd->tls);
    pthread_cond_destroy(&boardd->freed);
    pthread_mutex_destroy(&boardd->emulating);
    pthread_mutex_destroy(&boardd->lock);
    free(boardd);
}

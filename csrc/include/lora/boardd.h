/* The board daemon: a host's boards, served to other hosts and processes. The program around it
 * listens, and gives each connection a thread. */
#ifndef LORA_BOARDD_H
#define LORA_BOARDD_H

#include <stdint.h>

#include "lora/transport.h"

struct lora_boardd;

struct lora_boardd_board {
    const char *name;  /* as clients name it: "emu:u280/0" */
    const char *uri;   /* as this process opens it */
    uint32_t emulated; /* number of its emulated cluster, 0: another transport */
    uint32_t index;    /* of the board in that cluster */
};

struct lora_boardd_config {
    uint32_t size;
    uint32_t board_count;
    const struct lora_boardd_board *boards;
    const char *token;     /* of clients over TCP */
    const char *keys;      /* folder with ca.pem, cert.pem and key.pem; NULL: Unix sockets only */
    const char *folder;    /* for containers while they are loaded */
    const uint32_t *users; /* who may connect to a Unix socket, beside root and this user */
    uint32_t user_count;
    uint32_t speed; /* seconds of emulated boards a second, 1 */
};

struct lora_boardd_state {
    char name[64];
    char holder[128]; /* "": free */
    uint32_t busy, sessions;
};

int lora_boardd_create(const struct lora_boardd_config *config, struct lora_boardd **made,
                       struct lora_failure *failure);
/* Serves a connection until it ends or the daemon is stopped, and closes the socket. A TCP one must
 * begin with TLS. Returns 1 if the other end was let in. */
int lora_boardd_serve(struct lora_boardd *boardd, int socket);
/* A cable from a port of an emulated board to a port behind another daemon, until its connection
 * ends or the daemon is stopped. `uri`: the board there. */
int lora_boardd_cable(struct lora_boardd *boardd, uint32_t board, uint32_t port, const char *uri,
                      uint32_t far_port, struct lora_failure *failure);
/* Ends all connections soon. */
void lora_boardd_stop(struct lora_boardd *boardd);
/* After the last lora_boardd_serve has returned. */
void lora_boardd_destroy(struct lora_boardd *boardd);
/* The boards' states; returns how many there are, at most `capacity` are written. */
uint32_t lora_boardd_states(struct lora_boardd *boardd, struct lora_boardd_state *states,
                            uint32_t capacity);

#endif

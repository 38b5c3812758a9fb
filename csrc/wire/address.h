/* Where a daemon is: "HOST:PORT/BOARD" ([..] around IPv6), or "PATH/BOARD" of a Unix socket. The
 * board's own URI has a colon, the path has none. */
#ifndef LORA_ADDRESS_H
#define LORA_ADDRESS_H

#include <stdint.h>

#include "message.h"

#define WIRE_WHY 160

struct wire_address {
    char host[128]; /* "": a Unix socket */
    char port[8];
    char path[108];
    char board[WIRE_NAME]; /* "": none named */
};

/* 0: `address` is neither form. */
int wire_parse_tcp(const char *address, struct wire_address *found);
int wire_parse_unix(const char *address, struct wire_address *found);
/* A connected socket; -1: `why` tells. */
int wire_connect(const struct wire_address *address, uint64_t timeout_us, char why[WIRE_WHY]);
/* Small messages leave at once, and an end that vanished is found within about 20 s. */
void wire_tune(int socket);

#endif

/* The cables of the map, and failures that name one. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

int lora_cable_peer(const struct lora_cluster *cluster, uint32_t board, uint32_t port,
                    uint32_t *peer_board, uint32_t *peer_port) {
    for (uint32_t c = 0; c < cluster->cable_count; c++) {
        const struct lora_cable *cable = &cluster->cables[c];
        if (cable->board_a == board && cable->port_a == port) {
            *peer_board = cable->board_b;
            *peer_port = cable->port_b;
            return 1;
        }
        if (cable->board_b == board && cable->port_b == port) {
            *peer_board = cable->board_a;
            *peer_port = cable->port_a;
            return 1;
        }
    }
    return 0;
}

int lora_fail_link(const struct lora_cluster *cluster, uint32_t board, uint32_t port, int code,
                   struct lora_failure *failure, const char *format, ...) {
    char said[160];
    uint32_t peer_board = 0, peer_port = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    failure->board = (int32_t)board;
    failure->port = port < LORA_PORTS ? (int32_t)port : -1;
    if (!lora_cable_peer(cluster, board, port, &peer_board, &peer_port))
        return lora_fail(failure, code,
                         "link of board %u port %d, which no cable of the map has: %s", board,
                         failure->port, said);
    failure->peer_board = (int32_t)peer_board;
    failure->peer_port = (int32_t)peer_port;
    return lora_fail(failure, code,
                     "link board %u (%s) port %u - board %u (%s) port %u: board %u's end %s", board,
                     cluster->boards[board].info.address, port, peer_board,
                     cluster->boards[peer_board].info.address, peer_port, board, said);
}

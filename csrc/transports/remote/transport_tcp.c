/* The transport of boards behind a daemon over TCP with mutual TLS, "tcp:HOST:PORT/BOARD". */
#include "transport_remote.h"

static int tcp_open(const char *address, void **handle, struct lora_failure *failure) {
    struct wire_address found;
    if (!address || !wire_parse_tcp(address, &found) || !found.board[0])
        return lora_fail(failure, LORA_ERR_URI,
                         "tcp:%.100s: expected tcp:HOST:PORT/BOARD, as tcp:lab2:7410/emu:u280",
                         address ? address : "");
    return remote_open("tcp", address, &found, handle, failure);
}

const struct lora_transport lora_transport_tcp = {
    .scheme = "tcp",
    .open = tcp_open,
    REMOTE_CALLS,
};

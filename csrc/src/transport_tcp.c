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
    .size = sizeof(struct lora_transport),
    .scheme = "tcp",
    .real_time = 1,
    .open = tcp_open,
    .close = remote_close,
    .info = remote_info,
    .program = remote_program,
    .reserve = remote_reserve,
    .release = remote_release,
    .register_read = remote_register_read,
    .register_write = remote_register_write,
    .memory_read = remote_memory_read,
    .memory_write = remote_memory_write,
    .submit = remote_submit,
    .poll = remote_poll,
    .look = remote_look,
    .sleep = remote_sleep,
    .reset = remote_reset,
    .accesses = remote_accesses,
    .ecc = NULL, /* the daemon does not pass it on */
};

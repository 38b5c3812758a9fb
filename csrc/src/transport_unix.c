/* The transport of boards behind a daemon of this host, "unix:SOCKET/BOARD". */
#include "transport_remote.h"

static int unix_open(const char *address, void **handle, struct lora_failure *failure) {
    struct wire_address found;
    if (!address || !wire_parse_unix(address, &found) || !found.board[0])
        return lora_fail(failure, LORA_ERR_URI,
                         "unix:%.100s: expected unix:SOCKET/BOARD, as "
                         "unix:/run/lora/boardd.sock/emu:u280; a path of at most 107 characters",
                         address ? address : "");
    return remote_open("unix", address, &found, handle, failure);
}

const struct lora_transport lora_transport_unix = {
    .size = sizeof(struct lora_transport),
    .scheme = "unix",
    .real_time = 1,
    .open = unix_open,
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

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
    .scheme = "unix",
    .open = unix_open,
    REMOTE_CALLS,
};

/* vrtd's protocol: one packet a request, one a response, over a SOCK_SEQPACKET socket. */
#define _GNU_SOURCE
#include "transport_slash.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PACKET_BYTES 4096
#define HEADER_BYTES 8

static const char *const returns[] = {
    "OK",      "BAD_LIB_CALL", "BAD_CONN", "BAD_REQUEST", "INVALID_ARGUMENT",
    "NOEXIST", "INTERNAL",     "AUTH",     "BUSY"};

const char *slash_return_name(uint32_t code) {
    return code < sizeof returns / sizeof *returns ? returns[code] : "unknown";
}

const char *slash_socket_path(void) {
    const char *path = getenv("LORA_VRTD_SOCKET");
    return path && path[0] ? path : "/run/vrtd.sock";
}

static int cannot_connect(const char *path, int error, struct lora_failure *failure) {
    const char *cure = error == EACCES   ? "add yourself to the socket's group"
                       : error == ENOENT ? "start vrtd, or name its socket in LORA_VRTD_SOCKET"
                                         : "restart vrtd";
    return lora_fail(failure, LORA_ERR_TRANSPORT, "vrtd at %.100s: %s; %s", path, strerror(error),
                     cure);
}

int slash_connect(struct slash_wire *wire, struct lora_failure *failure) {
    const char *path = slash_socket_path();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *wire = (struct slash_wire){.socket = -1};
    if (strlen(path) >= sizeof address.sun_path)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "vrtd's socket path has %zu characters, at most %zu are possible",
                         strlen(path), sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    wire->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (wire->socket < 0) return cannot_connect(path, errno, failure);
    /* A daemon that is stopped accepts nobody, and its queue of clients may be full. */
    uint32_t limit_ms = slash_watchdog_limit(path, SLASH_ANSWER_MS);
    const struct timeval limit = {limit_ms / 1000, limit_ms % 1000 * 1000};
    setsockopt(wire->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(wire->socket, (struct sockaddr *)&address, sizeof address)) {
        int error = errno == EAGAIN ? ETIMEDOUT : errno;
        if (error == ETIMEDOUT) slash_watchdog_after(path, limit_ms);
        slash_disconnect(wire);
        return cannot_connect(path, error, failure);
    }
    return LORA_OK;
}

void slash_disconnect(struct slash_wire *wire) {
    if (wire->socket >= 0) close(wire->socket);
    wire->socket = -1;
}

int slash_alive(const struct slash_wire *wire) {
    char byte;
    if (wire->socket < 0) return 0;
    ssize_t got = recv(wire->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

/* A connection without an answer is out of step: nothing may be asked of it again. */
static int lost(struct slash_wire *wire, const char *what, struct lora_failure *failure) {
    slash_disconnect(wire);
    return lora_fail(failure, LORA_ERR_TRANSPORT,
                     "vrtd at %.100s %s; see 'systemctl status vrtd', then open the boards again",
                     slash_socket_path(), what);
}

static int send_packet(struct slash_wire *wire, const struct slash_request *request) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    const struct {
        uint16_t body_bytes, opcode;
        uint32_t sequence;
    } header = {request->body_bytes, request->opcode, wire->sequence};
    struct iovec parts[2] = {{(void *)&header, sizeof header},
                             {(void *)request->body, request->body_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = request->body_bytes ? 2 : 1};
    if (request->fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &request->fd, sizeof(int));
    }
    ssize_t sent;
    do sent = sendmsg(wire->socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)(HEADER_BYTES + request->body_bytes);
}

/* Of the descriptors that came along the first is kept, others are closed. */
static int take_fd(struct msghdr *message) {
    int kept = -1;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (kept < 0) kept = fd;
            else close(fd);
        }
    }
    return kept;
}

static int wait_readable(const struct slash_wire *wire, uint32_t timeout_ms) {
    struct pollfd at = {.fd = wire->socket, .events = POLLIN};
    int ready;
    do ready = poll(&at, 1, (int)timeout_ms);
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static ssize_t receive_packet(struct slash_wire *wire, uint8_t packet[PACKET_BYTES], int *fd) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = {0};
    struct iovec part = {packet, PACKET_BYTES};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do got = recvmsg(wire->socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    *fd = got >= 0 ? take_fd(&message) : -1;
    return got;
}

/* Header {u16 body bytes, u16 return, u32 sequence}, then the body; errors have none. */
static int check_answer(struct slash_wire *wire, struct slash_request *request,
                        const uint8_t *packet, ssize_t got, struct lora_failure *failure) {
    uint16_t words[2];
    uint32_t sequence;
    if (got == 0) return lost(wire, "has closed the connection", failure);
    if (got < HEADER_BYTES) return lost(wire, "sent half an answer", failure);
    memcpy(words, packet, sizeof words);
    memcpy(&sequence, packet + 4, sizeof sequence);
    if (got != HEADER_BYTES + words[0] || sequence != wire->sequence)
        return lost(wire, "sent an answer that belongs to no request", failure);
    request->result = words[1];
    request->answer_found = words[0];
    if (request->result) {
        failure->found = request->result;
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "vrtd refuses request %u: %s (%u); 'journalctl -u vrtd' says why",
                         request->opcode, slash_return_name(words[1]), words[1]);
    }
    if (request->answer_any ? words[0] > request->answer_bytes
                            : words[0] != request->answer_bytes) {
        failure->found = words[0];
        failure->expected = request->answer_bytes;
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "vrtd answers request %u with %u B, %u B expected: a version that is not "
                         "known; install 1.0.0",
                         request->opcode, words[0], request->answer_bytes);
    }
    if (words[0]) memcpy(request->answer, packet + HEADER_BYTES, words[0]);
    return LORA_OK;
}

int slash_call(struct slash_wire *wire, struct slash_request *request,
               struct lora_failure *failure) {
    uint8_t packet[PACKET_BYTES];
    int fd = -1;
    request->result = request->answer_found = 0;
    if (wire->socket < 0)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "vrtd at %.100s: the connection is gone; open the boards again",
                         slash_socket_path());
    wire->sequence++;
    if (!send_packet(wire, request)) return lost(wire, "is gone", failure);
    uint32_t limit_ms = slash_watchdog_limit(slash_socket_path(), request->timeout_ms);
    if (!wait_readable(wire, limit_ms)) {
        slash_watchdog_after(slash_socket_path(), limit_ms);
        return lost(wire, "does not answer in time", failure);
    }
    slash_watchdog_over(); /* or it has ended, which is told at once */
    ssize_t got = receive_packet(wire, packet, &fd);
    if (got < 0) return lost(wire, "is gone", failure);
    int status = check_answer(wire, request, packet, got, failure);
    if (!status && request->answer_fd && fd < 0)
        status = lora_fail(failure, LORA_ERR_TRANSPORT,
                           "vrtd answers request %u without a descriptor", request->opcode);
    if (!status && request->answer_fd) *request->answer_fd = fd;
    else if (fd >= 0) close(fd);
    return status;
}

#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tls.h"

#define OUT_ROOM 16384

uint64_t wire_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

int wire_open(struct wire_channel *channel, int socket) {
    *channel = (struct wire_channel){.socket = socket};
    channel->out = malloc(OUT_ROOM);
    int flags = fcntl(socket, F_GETFL);
    if (!channel->out || flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) ||
        !wire_allow(channel, WIRE_GREETING_BODY)) {
        wire_close(channel);
        return 0;
    }
    return 1;
}

void wire_close(struct wire_channel *channel) {
    if (channel->tls) wire_tls_end(channel->tls);
    if (channel->socket >= 0) close(channel->socket);
    free(channel->out);
    free(channel->in);
    channel->socket = -1;
    channel->tls = channel->out = channel->in = NULL;
}

int wire_fail(struct wire_channel *channel, const char *format, ...) {
    if (channel->socket < 0) return WIRE_DEAD;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(channel->why, sizeof channel->why, format, arguments);
    va_end(arguments);
    wire_close(channel);
    return WIRE_DEAD;
}

int wire_allow(struct wire_channel *channel, uint32_t bytes) {
    size_t room = sizeof(struct wire_header) + bytes;
    channel->limit = bytes;
    if (room <= channel->in_room) return 1;
    uint8_t *more = realloc(channel->in, room);
    if (!more) return 0;
    channel->in = more;
    channel->in_room = room;
    return 1;
}

/* --- bytes -------------------------------------------------------------------------------------*/
static int ready(const struct wire_channel *channel, short events, int other, uint64_t timeout_us) {
    struct pollfd at[2] = {{.fd = channel->socket, .events = events},
                           {.fd = other, .events = POLLIN}};
    struct timespec time = {(time_t)(timeout_us / 1000000), (long)(timeout_us % 1000000) * 1000};
    int found = ppoll(at, other < 0 ? 1 : 2, &time, NULL);
    return found > 0 && at[0].revents;
}

int wire_wait(struct wire_channel *channel, int other, uint64_t timeout_us) {
    if (channel->socket < 0) return 1;
    if (channel->tls && wire_tls_pending(channel->tls)) return 1;
    return ready(channel, POLLIN, other, timeout_us);
}

/* Bytes that were sent; 0: none now; -1: the connection is broken. */
static long send_some(struct wire_channel *channel, const uint8_t *data, size_t bytes,
                      short *want) {
    *want = POLLOUT;
    if (channel->tls) return wire_tls_write(channel->tls, data, bytes, want);
    ssize_t sent = send(channel->socket, data, bytes, MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

static long receive_some(struct wire_channel *channel, short *want) {
    uint8_t *at = channel->in + channel->in_end;
    size_t room = channel->in_room - channel->in_end;
    *want = POLLIN;
    if (channel->tls) return wire_tls_read(channel->tls, at, room, want);
    ssize_t got = recv(channel->socket, at, room, 0);
    if (got > 0) return got;
    if (got == 0) return -1;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

static int send_all(struct wire_channel *channel, const uint8_t *data, size_t bytes) {
    uint64_t moved_at = 0;
    for (size_t done = 0; done < bytes;) {
        short want;
        long sent = send_some(channel, data + done, bytes - done, &want);
        if (sent < 0) return wire_fail(channel, "the connection is broken");
        if (sent > 0) {
            done += (size_t)sent;
            moved_at = 0;
            continue;
        }
        uint64_t now = wire_now_us();
        if (!moved_at) moved_at = now;
        if (now - moved_at >= WIRE_STALL_MS * 1000ull)
            return wire_fail(channel, "it takes no bytes for %d s", WIRE_STALL_MS / 1000);
        ready(channel, want, -1, 100000);
    }
    return 0;
}

/* --- messages ----------------------------------------------------------------------------------*/
int wire_flush(struct wire_channel *channel) {
    if (channel->socket < 0) return WIRE_DEAD;
    size_t bytes = channel->out_used;
    channel->out_used = 0;
    return bytes ? send_all(channel, channel->out, bytes) : 0;
}

static int append(struct wire_channel *channel, const void *data, size_t bytes) {
    if (channel->out_used + bytes > OUT_ROOM && wire_flush(channel)) return WIRE_DEAD;
    if (bytes > OUT_ROOM) return send_all(channel, data, bytes);
    if (bytes) memcpy(channel->out + channel->out_used, data, bytes);
    channel->out_used += bytes;
    return 0;
}

int wire_put(struct wire_channel *channel, uint32_t kind, uint32_t sequence,
             const struct wire_part *parts, uint32_t count) {
    if (channel->socket < 0) return WIRE_DEAD;
    struct wire_header header = {.magic = WIRE_MAGIC, .kind = (uint16_t)kind, .sequence = sequence};
    for (uint32_t i = 0; i < count; i++) header.bytes += (uint32_t)parts[i].bytes;
    int status = append(channel, &header, sizeof header);
    for (uint32_t i = 0; i < count && !status; i++)
        status = append(channel, parts[i].data, parts[i].bytes);
    return status;
}

/* A whole message in the buffer, WIRE_NOTHING where more bytes are needed. */
static int take(struct wire_channel *channel, struct wire_message *message) {
    size_t held = channel->in_end - channel->in_begin;
    if (held < sizeof message->header) return WIRE_NOTHING;
    memcpy(&message->header, channel->in + channel->in_begin, sizeof message->header);
    if (message->header.magic != WIRE_MAGIC)
        return wire_fail(channel, "no message of a board daemon: 0x%08x found, 0x%08x expected",
                         message->header.magic, WIRE_MAGIC);
    if (message->header.bytes > channel->limit)
        return wire_fail(channel, "a message of kind %u has %u B, at most %u expected",
                         message->header.kind, message->header.bytes, channel->limit);
    size_t whole = sizeof message->header + message->header.bytes;
    if (held < whole) return WIRE_NOTHING;
    message->body = channel->in + channel->in_begin + sizeof message->header;
    channel->in_begin += whole;
    return WIRE_MESSAGE;
}

/* Room for a whole message behind the beginning of what is held. */
static void compact(struct wire_channel *channel) {
    size_t held = channel->in_end - channel->in_begin;
    if (channel->in_begin && held) memmove(channel->in, channel->in + channel->in_begin, held);
    channel->in_begin = 0;
    channel->in_end = held;
}

int wire_get(struct wire_channel *channel, struct wire_message *message, uint64_t timeout_us) {
    uint64_t began = 0;
    while (channel->socket >= 0) {
        int got = take(channel, message);
        if (got != WIRE_NOTHING) return got;
        compact(channel);
        short want;
        long bytes = receive_some(channel, &want);
        if (bytes < 0) return wire_fail(channel, "it has closed the connection");
        if (bytes > 0) {
            channel->in_end += (size_t)bytes;
            continue;
        }
        uint64_t now = wire_now_us();
        if (!began) began = now;
        if (now - began >= timeout_us) return WIRE_NOTHING;
        ready(channel, want, -1, timeout_us - (now - began));
    }
    return WIRE_DEAD;
}

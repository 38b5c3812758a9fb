/* A connection that carries messages: buffered, bounded in size and time, plain or TLS. Used by one
 * thread at a time. */
#ifndef LORA_CHANNEL_H
#define LORA_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include "message.h"

#define WIRE_STALL_MS 10000 /* the other end takes nothing for so long: it is gone */

struct wire_tls;

struct wire_channel {
    int socket;     /* -1: dead */
    void *tls;      /* an SSL, NULL: plain */
    uint32_t limit; /* of a body that arrives */
    uint8_t *out, *in;
    size_t out_used;
    size_t in_begin, in_end, in_room;
    char why[160]; /* it is dead */
};

struct wire_part {
    const void *data;
    size_t bytes;
};

struct wire_message {
    struct wire_header header;
    const uint8_t *body; /* until the next receive */
};

enum wire_got { WIRE_DEAD = -1, WIRE_NOTHING = 0, WIRE_MESSAGE = 1 };

/* Takes the socket, which becomes non-blocking. 0: no memory, and the socket is closed. */
int wire_open(struct wire_channel *channel, int socket);
void wire_close(struct wire_channel *channel);
/* Marks it dead and keeps the first reason. Returns WIRE_DEAD. */
int wire_fail(struct wire_channel *channel, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* How large a body may be from now on; 0: no memory. */
int wire_allow(struct wire_channel *channel, uint32_t bytes);
/* Appends a message, and sends when the buffer is full. 0, or WIRE_DEAD. */
int wire_put(struct wire_channel *channel, uint32_t kind, uint32_t sequence,
             const struct wire_part *parts, uint32_t count);
int wire_flush(struct wire_channel *channel);
/* The next message if it arrives in time. */
int wire_get(struct wire_channel *channel, struct wire_message *message, uint64_t timeout_us);
/* Whether bytes come in time; `other` (-1: none) may end the wait as well. */
int wire_wait(struct wire_channel *channel, int other, uint64_t timeout_us);
uint64_t wire_now_us(void);

#endif

/* Messages between a host and a board daemon. Each is a header and a body of fixed layout, then
 * data; little endian, sizes checked before anything is read. docs/boardd.md has the rules. */
#ifndef LORA_MESSAGE_H
#define LORA_MESSAGE_H

#include <stdint.h>

#include "lora/abi.h"
#include "lora/transport.h"

#define WIRE_MAGIC 0x64624f4cu /* "LObd" */
#define WIRE_VERSION 1
#define WIRE_ANSWER 0x8000u  /* added to the kind of the request */
#define WIRE_DATA (1u << 20) /* of one message; larger transfers are several */
#define WIRE_BODY (WIRE_DATA + 512)
#define WIRE_GREETING_BODY 512 /* until the other end is known */
#define WIRE_RANGES 5          /* that come with the answer to a run */
#define WIRE_RANGES_BYTES (512u << 10)
#define WIRE_NAME 64
#define WIRE_TOKEN 72
#define WIRE_ARGUMENTS 11

enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_INFO = 2,
    WIRE_CONTAINER = 3, /* a piece of the vendor's container; no answer */
    WIRE_PROGRAM = 4,
    WIRE_RESERVE = 5,
    WIRE_RELEASE = 6,
    WIRE_REGISTER_READ = 7,
    WIRE_REGISTER_WRITE = 8, /* no answer */
    WIRE_READ = 9,
    WIRE_WRITE = 10, /* no answer */
    WIRE_RUN = 11,   /* answered when the run is done */
    WIRE_POLL = 12,
    WIRE_POLL_REGISTER = 13,
    WIRE_RESET = 14,
    WIRE_ACCESSES = 15,
    WIRE_FLUSH = 16, /* answered when all before it is done: what had no answer may have failed */
    WIRE_STATUS = 17,
    WIRE_FRAME = 18,  /* on a cable; no answer */
    WIRE_CHANNEL = 19 /* on a cable: whether this end is ready, and frames taken; no answer */
};

enum wire_role {
    WIRE_ROLE_BOARD = 1, /* holds a board */
    WIRE_ROLE_STATUS = 2,
    WIRE_ROLE_CABLE = 3
};

struct wire_header {
    uint32_t magic;
    uint16_t kind, reserved;
    uint32_t bytes; /* of the body */
    uint32_t sequence;
};

/* The first two fields stay where they are in every version. */
struct wire_hello {
    uint32_t version, abi;
    uint32_t role, port; /* port: of a cable */
    char token[WIRE_TOKEN];
    char board[WIRE_NAME];
    char who[WIRE_NAME];
};

struct wire_welcome {
    uint32_t version, abi;
};

struct wire_answer { /* before every answer's data; with a status a struct lora_failure follows */
    uint32_t status, reserved;
};

struct wire_program {
    uint32_t board_kind, abi, onchip_bytes, clock_hz;
    uint64_t block_base[3];
    uint64_t container_bytes; /* 0: none */
};

struct wire_range {
    uint32_t bank, reserved;
    uint64_t offset, bytes;
};

struct wire_register {
    uint32_t block, offset, value;
};

struct wire_run {
    uint32_t arguments[WIRE_ARGUMENTS];
    uint32_t ranges;
    struct wire_range range[WIRE_RANGES];
};

struct wire_ran {    /* then the bytes of the ranges that could be read, one after another */
    uint32_t ranges; /* bit i: range i is here */
    uint32_t reserved;
};

struct wire_channel_state {
    uint32_t ready, taken; /* frames taken since the last one */
};

struct wire_board_state { /* of a STATUS answer, one a board */
    char name[WIRE_NAME];
    char holder[2 * WIRE_NAME]; /* "" for a free board */
    uint32_t busy;              /* runs */
    uint32_t sessions;          /* that have held it since the daemon was started */
};

#endif

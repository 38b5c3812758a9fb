/* The emulated cluster: boards, their memory, firmware, units and the cables between them. Boards
 * of one cluster are opened through the transport as "emu:CLUSTER/BOARD". */
#ifndef LORA_EMU_H
#define LORA_EMU_H

#include <stdint.h>

struct lora_emu_cable {
    uint32_t board_a, port_a, board_b, port_b;
};

/* The emulated board around its control, for a control that is no part of this library; of the
 * board that the calling thread works on. Times are board cycles. */
struct lora_board_calls {
    uint32_t size;
    uint32_t reserved;
    uint32_t (*get_register)(uint32_t offset); /* of lora_ctrl */
    void (*set_register)(uint32_t offset, uint32_t value);
    /* Bytes of a bank, also of LORA_BANK_ONCHIP. Not 0: an error is the answer, and bytes that are
     * read are 0. */
    int (*read)(uint32_t bank, uint64_t offset, void *data, uint32_t bytes);
    int (*write)(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes);
    int (*unit_fails)(void); /* fault: this read of a unit does */
    uint64_t (*time)(void);
    void (*pass)(uint64_t cycles); /* time passes on this board */
    /* Links; frames only from `send` and `take`. Whether the channel is up, and frames that the far
     * end has room for: the last room is poison's. */
    int (*port_up)(uint32_t port, uint32_t *room);
    void (*port_send)(uint32_t port, const uint8_t *frame, uint32_t bytes, uint64_t sent_at);
    /* The next frame, of at most LORA_EMU_FRAME_ROOM bytes; 0: there is none. */
    uint32_t (*port_take)(uint32_t port, uint8_t *frame, uint64_t *sent_at);
};
#define LORA_EMU_FRAME_ROOM 4160

/* What controls the boards of a cluster. A board's functions are called by one thread at a time. */
struct lora_control {
    uint32_t size;
    uint32_t slice_cycles; /* of a poll; 0: `pass` tells them */
    uint32_t most_slices;  /* or series of slices, then the host gets a look */
    uint32_t reserved;
    void *context;
    /* A board's control, NULL without memory. */
    void *(*open)(void *context, uint32_t board, const struct lora_board_calls *calls);
    /* Optional: the firmware's code, which begins at 0. Not 0: it is too long. */
    int (*load)(void *core, const uint8_t *code, uint64_t bytes);
    void (*begin)(void *core);    /* from the start; calls nothing of the board */
    uint32_t (*poll)(void *core); /* as firmware.h's fw_poll */
    /* Optional, after polls, while no board is polled: all boards' frames are sent, then taken. */
    void (*send)(void *core);
    void (*take)(void *core);
    void (*close)(void *core);
};

struct lora_emu_config {
    uint32_t size;
    uint32_t boards;
    const struct lora_board_info *board_info; /* one a board */
    uint32_t cable_count;
    uint32_t clock_hz; /* of lora_ctrl */
    const struct lora_emu_cable *cables;
    const struct lora_kernels *kernels; /* must outlive the cluster */
    uint32_t link_configuration;        /* LORA_LINK_CONFIGURATION's value */
    uint32_t trace_capacity;            /* records kept a board, 0 for no trace */
    uint32_t threads;                   /* for kernels that can share work; 0: one a CPU */
    uint32_t reserved;
    const struct lora_control *control; /* must outlive the cluster; NULL: the firmware */
};

enum lora_emu_fault_kind {
    LORA_FAULT_NONE = 0,        /* clears all faults of the board */
    LORA_FAULT_LINK_DOWN = 1,   /* a = port */
    LORA_FAULT_LINK_FLIP = 2,   /* a = port, b = frames to pass first, c = how many to damage: one
                                   payload bit on the wire, the CRC as sent */
    LORA_FAULT_LINK_GARBLE = 3, /* a = port, b = frames to pass first, c = how many, 0 for all:
                                   payload wrong, CRC right (a silent fault) */
    LORA_FAULT_LINK_CONFIG = 4, /* a = port, b = configuration value to report */
    LORA_FAULT_UNIT_STUCK = 5,  /* a = unit: never finishes; b = frames that a Router still moves */
    LORA_FAULT_COMPLETION_LOST = 6, /* the done bit comes, the completion record does not */
    LORA_FAULT_DONE_LOST = 7,       /* neither done bit nor record */
    LORA_FAULT_FIRMWARE_DEAD = 8,   /* never polled: registers answer, nothing runs */
    LORA_FAULT_MISFILE = 9,         /* the router files received blocks under the source's neighbour
                                       (source ^ 1); b and c as for LINK_GARBLE, frames received */
    LORA_FAULT_BOARD_LOST = 10, /* the board has left the bus: no access succeeds, links are down;
                                   a = reset with which it returns without its memory, 0: none */
    /* Frames on the wire: a = port, b = frames to pass first, c = how many, 0 for all. */
    LORA_FAULT_LINK_DROP = 11,
    LORA_FAULT_LINK_DUPLICATE = 12,
    LORA_FAULT_LINK_REORDER = 13, /* a frame overtakes the one before it, where that still waits */
    LORA_FAULT_LINK_STALE = 14,   /* the epoch before, CRC right */
    LORA_FAULT_LINK_DELAY = 15,   /* a = port, b = frames to pass first, c = microseconds */
    LORA_FAULT_LINK_SWAP = 16,    /* the cables of ports 0 and 1 are crossed */
    LORA_FAULT_UNIT_SLOW = 17,    /* a = MPU, VFU or DMA, b = microseconds more for each command */
    LORA_FAULT_RECORD_STEP = 18,  /* completion records name the step before */
    LORA_FAULT_RECORD_EPOCH = 19, /* completion records name the epoch before */
    LORA_FAULT_DONE_EARLY = 20,   /* the next start finds the done bit set already */
    LORA_FAULT_FIRMWARE_RESET = 21,  /* once, after a polls: the firmware begins anew */
    LORA_FAULT_FIRMWARE_STALL = 22,  /* a = microseconds in which the firmware does nothing */
    LORA_FAULT_REGISTERS_ONES = 23,  /* every register reads as ones, no write has an effect */
    LORA_FAULT_WRITE_LOST = 24,      /* the host's transfers to memory: a = to pass first */
    LORA_FAULT_WRITE_SHORT = 25,     /* the same: the second half does not arrive */
    LORA_FAULT_WRITE_MISPLACED = 26, /* the same: it arrives b bytes further, if that is reserved */
    LORA_FAULT_WRITE_TWICE = 27,     /* the same, of at most 4 KiB: again behind the next one */
    LORA_FAULT_UNIT_FAILS = 28,      /* a = unit, b = commands to pass: one ends as failed */
    LORA_FAULT_UNIT_FORGETS = 29,    /* the same: the unit is idle, and nothing was done */
    LORA_FAULT_START_LOST = 30,      /* the next start does not reach the board */
    LORA_FAULT_CLOCK_JUMP = 31,      /* a = polls to pass, b = milliseconds: what the firmware's
                                        clock is ahead from then on */
    LORA_FAULT_READ_FAILS = 32,  /* the host's transfers from memory: a = to pass; one ends in an
                                    error */
    LORA_FAULT_WRITE_FAILS = 33, /* the same of those to memory */
    LORA_FAULT_ECC_SINGLE = 34,  /* a = bank, b = word of 8 bytes in it, c = bit: it is wrong until
                                    the word is written. Resets do not heal it. */
    LORA_FAULT_ECC_DOUBLE = 35,  /* the same, and a second bit */
    LORA_FAULT_ECC_OFF = 36,     /* for tests: the board has no ECC from now on */
    LORA_FAULT_BLIND = 37,       /* for tests: a = what the board does not notice from now on, of
                                    enum lora_emu_blind */
    LORA_FAULT_UNTIL_RESET = 0x100 /* added to a kind: the board's faults end at its next reset */
};

enum lora_emu_blind {
    LORA_BLIND_FRAME_CRC = 1,   /* frames whose CRC is wrong */
    LORA_BLIND_DIGESTS = 2,     /* sums of gathers: all are 0 */
    LORA_BLIND_UNIT_STATES = 4, /* units that have failed, or have lost their command */
    LORA_BLIND_TRANSFERS = 8    /* transfers of the host that end in an error */
};

struct lora_trace_record { /* 40 bytes: one command of one step */
    uint32_t step, index;
    uint8_t opcode, unit, op, reserved;
    uint16_t layer, reserved_2;
    uint32_t rows, reserved_3;
    uint64_t begin, end; /* board clock */
};

/* This machine's time in the units' own work, wall clock, while the profiler was on; where boards
 * run on several threads at once, the busiest thread's. The rest of a step is overhead: host
 * library, firmware, scheduling. */
struct lora_emu_times {
    uint64_t kernels_ns;  /* MPU and VFU: inside the kernels, all threads waited for */
    uint64_t moves_ns;    /* DMA: KV cache and rows */
    uint64_t links_ns;    /* Router: frames made, checked, forwarded and filed */
    uint64_t profiler_ns; /* the profiler itself, by what it took when it was turned on */
};

int lora_emu_create(const struct lora_emu_config *config, uint32_t *cluster,
                    struct lora_failure *failure);
void lora_emu_destroy(uint32_t cluster);
/* Threads that kernels of this cluster run on; 0 for an unknown cluster. */
uint32_t lora_emu_threads(uint32_t cluster);
/* Turns the profiler on or off; it costs some 20 ns a command. Off at first. LORA_ERR_ARGUMENT for
 * an unknown cluster. */
int lora_emu_profile(uint32_t cluster, uint32_t on);
int lora_emu_times(uint32_t cluster, struct lora_emu_times *times);
int lora_emu_fault(uint32_t cluster, uint32_t board, uint32_t kind, uint32_t a, uint32_t b,
                   uint32_t c);
/* Copies at most capacity records, oldest first, and empties the trace. */
uint32_t lora_emu_trace(uint32_t cluster, uint32_t board, struct lora_trace_record *records,
                        uint32_t capacity, uint32_t *dropped);
/* Frame bytes (header, payload, CRC) and payload bytes sent by a port since creation. */
int lora_emu_link_bytes(uint32_t cluster, uint32_t board, uint32_t port, uint64_t *frame_bytes,
                        uint64_t *payload_bytes);

/* Bytes of weight blocks that a board's matmuls have read since creation: of an EXPERTS those of
 * the experts that some row chose, each once. */
int lora_emu_weight_bytes(uint32_t cluster, uint32_t board, uint64_t *bytes);

/* Makes these the arenas of a board, in place of all that it has; the bytes of each are those of a
 * file from `base` on: a mock server of a runtime's daemon hands the same file to its clients as
 * the board's memory. Base and offset must agree modulo 4096. */
int lora_emu_attach(uint32_t cluster, uint32_t board, const struct lora_arena_record *arenas,
                    uint32_t count, int fd, struct lora_failure *failure);

/* For boards that are driven from another process: `microseconds` of board time pass, then a
 * slice runs, or a short series of them. *moved is 0 when nothing could, so that only time helps.
 */
int lora_emu_advance(uint32_t cluster, uint32_t microseconds, uint32_t *moved);

/* A port whose cable leads to a board of another process. Who carries the frames joins it, takes
 * what it sends and puts what arrives. LORA_ERR_ARGUMENT: no such port, or not joined. */
struct lora_emu_end {
    uint32_t cluster, board, port;
};
/* The port must have no cable. `notify` is called under the cluster's lock when frames lie ready.
 */
int lora_emu_far_join(const struct lora_emu_end *at, void (*notify)(void *context), void *context);
void lora_emu_far_part(const struct lora_emu_end *at);
/* A frame that was sent, 0 bytes where there is none; room for a frame's most. `data` NULL: none is
 * taken. *ready: this end would be up. */
int lora_emu_far_take(const struct lora_emu_end *at, uint8_t *data, uint32_t *bytes,
                      uint32_t *ready);
/* The other end would be up, or not. */
int lora_emu_far_ready(const struct lora_emu_end *at, uint32_t ready);
/* A frame from the other end. LORA_ERR_SIZE: it is none. *taken: 0 while the FIFO is full. */
int lora_emu_far_put(const struct lora_emu_end *at, const uint8_t *data, uint32_t bytes,
                     uint32_t *taken);

extern const struct lora_transport lora_transport_emu;

#endif

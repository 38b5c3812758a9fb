/* One QSFP port: an Aurora core with its receive FIFO and the cable to another port. */
#ifndef EMU_AURORA_H
#define EMU_AURORA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lora/abi.h"

#define EMU_FIFO_FRAMES 32 /* power of two */
#define EMU_FRAME_BYTES (sizeof(struct lora_frame) + LORA_FRAME_PAYLOAD + 4)
#define EMU_LANES_UP_US 5000 /* from a core's release, or a cable's return, to channel up */
#define EMU_SLOT_BYTES 4160  /* a frame in whole 64-byte transfers */

struct emu_board;
struct emu_cluster;
struct emu_far;

struct emu_port_counters { /* cleared by LORA_LINK_COUNTER_RESET */
    uint64_t not_ok_cycles;
    uint32_t tx, rx; /* 64-byte transfers */
    uint32_t flow_full, flow_empty;
    uint32_t line_down, pll_not_locked, mmcm_not_locked, channel_down;
    uint32_t frames_received, frames_with_errors;
};

struct emu_frame_fault { /* to every frame while `on`: `after` pass, then `count` are damaged */
    bool on;
    uint32_t after, count;
};

/* Whether the fault strikes this frame; counts it. */
static inline bool emu_frame_struck(struct emu_frame_fault *fault) {
    if (!fault->on) return false;
    if (fault->after > 0) {
        fault->after--;
        return false;
    }
    fault->on = --fault->count > 0;
    return true;
}

struct emu_port_faults {
    bool down, configured;
    uint32_t configuration;
    struct emu_frame_fault garble, flip, drop, duplicate, reorder, stale, delay;
    uint64_t delay_cycles;
};

struct emu_port {
    struct emu_board *board;
    struct emu_port *peer; /* NULL: no cable */
    struct emu_far *far;   /* of a cable out of this process, NULL: never had one */
    uint32_t index;
    uint8_t *slots;                    /* receive FIFO, EMU_FIFO_FRAMES slots */
    uint32_t head, tail;               /* free running */
    uint32_t checked;                  /* 1 + index of the head frame whose CRC held */
    uint32_t poisons;                  /* poison frames in the FIFO */
    uint64_t sent_at[EMU_FIFO_FRAMES]; /* of frames of simulated cards */
    bool flow_stopped;
    bool held;                   /* what lies in the FIFO has not arrived yet */
    uint64_t held_until;         /* cycles */
    bool core_reset, reset_done; /* reset_done: held long enough and released */
    bool up;                     /* channel up, as of the last refresh */
    uint64_t reset_since;        /* cycles */
    uint64_t ready_at;           /* earliest time of channel up as far as this end goes */
    uint64_t refreshed_at;
    struct emu_port_counters counters;
    struct emu_port_faults faults;
    uint64_t frame_bytes, payload_bytes; /* sent since creation */
};

int emu_port_init(struct emu_port *port, struct emu_board *board, uint32_t index);
void emu_port_free(struct emu_port *port);
void emu_port_power_off(struct emu_port *port); /* the board lost its program */
void emu_port_flush(struct emu_port *port);
/* Works out the channel's state for both ends after time, registers or faults changed. */
void emu_port_refresh(struct emu_port *port);
/* Whether the channel is up as far as this end goes. */
bool emu_port_is_ready(const struct emu_port *port);

/* Whether a fault is set that strikes frames which leave here. */
bool emu_port_has_frame_faults(const struct emu_port *port);

/* Sending: claim a frame to fill, then commit it. NULL: channel down, or fewer than spare + 1 free
 * slots in the far FIFO (back-pressure). */
struct lora_frame *emu_port_claim(struct emu_port *port, uint32_t spare);
void emu_port_commit(struct emu_port *port);
/* The poison frame may take the slot that back-pressure keeps free. */
void emu_port_poison(struct emu_port *port, uint32_t epoch, uint32_t step, uint8_t source);

static inline struct lora_frame *emu_port_slot(const struct emu_port *port, uint32_t index) {
    void *at = port->slots + (index & (EMU_FIFO_FRAMES - 1)) * (size_t)EMU_SLOT_BYTES;
    return (struct lora_frame *)at;
}

/* Receiving. `head` is NULL when the FIFO is empty. */
static inline struct lora_frame *emu_port_head(const struct emu_port *port) {
    return port->tail != port->head && !port->held ? emu_port_slot(port, port->head) : NULL;
}
void emu_port_pop(struct emu_port *port);
bool emu_port_head_intact(struct emu_port *port); /* magic, sizes, kind, CRC */
/* Is there a poison frame of this step, or of an earlier one of its epoch, anywhere in the FIFO? */
bool emu_port_find_poison(const struct emu_port *port, uint32_t epoch, uint32_t step);
static inline bool emu_port_poisoned(const struct emu_port *port, uint32_t epoch, uint32_t step) {
    return port->poisons && emu_port_find_poison(port, epoch, step);
}
/* Drops frames of epochs before this one; returns how many. */
uint32_t emu_port_drop_before(struct emu_port *port, uint32_t epoch);

static inline uint8_t *emu_frame_payload(struct lora_frame *frame) {
    return (uint8_t *)(frame + 1);
}
/* frames.c */
uint32_t emu_frame_crc(const struct lora_frame *frame);
void emu_frame_seal(struct lora_frame *frame, uint32_t crc);

/* link_faults.c: what faults do to the frame at the far FIFO's tail, before it counts as sent and
 * after. False: it is lost. */
bool emu_wire_before(struct emu_port *port, struct lora_frame *frame);
void emu_wire_after(struct emu_port *port, uint64_t now);

/* hal_host.c: of the board that this thread's firmware runs on. */
struct emu_port *emu_hal_port(uint32_t index);

/* aurora_registers.c */
uint32_t emu_link_read(struct emu_port *port, uint32_t offset);
void emu_link_write(struct emu_port *port, uint32_t offset, uint32_t value);

#endif

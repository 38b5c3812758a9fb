/* The Router unit: all-gathers over the links, one at a time, never blocking. */
#ifndef EMU_ROUTER_H
#define EMU_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

#include "lora/abi.h"
#include "gather_plan.h"

#define EMU_PLANS (LORA_MAX_BOARDS + 8) /* plans kept; a model has few distinct gather shapes */
#define EMU_KEPT_BYTES 8192 /* of a board's own columns; a gather of more moves frames */

enum emu_direction { EMU_NEXT = 0, EMU_PREVIOUS = 1, EMU_DIRECTIONS = 2 };

struct emu_board;
struct emu_cluster;
struct emu_port;

struct emu_plans { /* of all boards of a cluster */
    struct gather_shape shapes[EMU_PLANS];
    uint32_t next;                        /* to be replaced */
    struct gather_plan *plans[EMU_PLANS]; /* NULL until needed */
};

struct emu_router { /* in front what threads tell each other of a gather that begins */
    _Alignas(LORA_LINE_BYTES) uint32_t state; /* enum lora_unit_state */
    bool prepared;                            /* its command was checked and has a plan */
    bool ring;
    const struct lora_gather *command; /* that is to begin; NULL once it has */
    struct gather_plan *plan;
    uint32_t rank, boards, owners; /* among the boards of this gather */
    uint32_t epoch, step, collective;
    uint32_t kept_place;                         /* of `kept`, the same on all boards */
    uint32_t kept_bytes;                         /* 0: the columns are not there */
    struct emu_port *out[EMU_DIRECTIONS];        /* frames going that way leave here */
    struct emu_port *in[EMU_DIRECTIONS];         /* frames going that way arrive here */
    struct emu_port *direct_out[EMU_DIRECTIONS]; /* `out` of the last gather without frames */
    const struct lora_list *list;
    const struct lora_step_state *step_state;
    uint32_t status; /* enum lora_status of a failed gather */
    uint32_t failed_port;
    uint32_t frames_sent, frames_received, frames_dropped;
    uint32_t out_of[LORA_PORTS], in_by[LORA_PORTS]; /* frames of this gather by port */
    uint32_t blocked;                               /* a bit a port: the far FIFO was full */
    uint8_t *base;                                  /* row 0 of the on-chip buffer */
    uint32_t stride;
    uint32_t missing[GATHER_GROUPS][LORA_SEGMENTS]; /* bytes */
    uint32_t missing_total;
    uint32_t groups_done[LORA_SEGMENTS];
    bool notify; /* for the firmware: a segment is complete, or the gather is over */
    /* Bytes of each block so far; a source has the room of the plan's most blocks. */
    uint32_t received[LORA_MAX_BOARDS * GATHER_BLOCKS];
    struct {
        uint32_t block, offset;
    } cursor[EMU_DIRECTIONS];
    /* Own blocks of one frame that have left one way: their CRC also holds the other way. */
    uint32_t sealed; /* a bit a block */
    uint32_t seal[GATHER_BLOCKS];
    struct emu_frame_fault misfile; /* files blocks under the source's neighbour */
    bool stuck;                     /* fault: moves `stuck_after` frames more, then none */
    uint32_t stuck_after;
    /* The board's own columns, row after row, as others read them (gather_direct.c). The next
     * gather's go to the other place. */
    _Alignas(LORA_LINE_BYTES) uint8_t kept[2][EMU_KEPT_BYTES];
};

/* What a board's firmware asks of the links, done when no board runs. */
struct emu_link_requests {
    bool drop, poison, link_test;
    uint8_t rank;
    uint32_t drop_before; /* frames of epochs before this one leave the FIFOs */
    uint32_t port_next, port_previous, epoch, step; /* of the poison frame */
};

void emu_router_start(struct emu_board *board, const struct lora_gather *command,
                      const struct lora_list *list, const struct lora_step_state *state);
/* Keeps the board's own columns, which its firmware may change as soon as its gather is done. */
void emu_router_keep(struct emu_router *router);
/* A gather that all boards begin at once over links without faults; false: it is not one. Where
 * cluster->direct is then set it needs no frames, and emu_gather_file files what a board gets, on
 * the board's own thread. Otherwise its frames have moved. */
bool emu_gather_direct(struct emu_cluster *cluster);
void emu_gather_file(struct emu_board *board);
/* The gather that a board begins right after one without frames; no plan: it begins none, or frames
 * must move. */
struct gather_offer {
    const struct gather_plan *plan;
    uint32_t epoch, step, collective;
};
struct gather_offer emu_gather_offer(const struct emu_board *board);
/* Whether all boards offer the same one: it needs no frames either. */
bool emu_gather_follows(const struct gather_offer *const *offers, uint32_t boards);
/* Moves what can move; returns true when the firmware should look. */
bool emu_router_pump(struct emu_board *board);
/* The same for all boards until nothing moves; wakes boards whose firmware should look. */
void emu_router_settle(struct emu_cluster *cluster);
void emu_router_begin(struct emu_board *board);
/* Of a gather that is done: CRC-32 of its rows. A card's Router adds it up from what it files and
 * what it holds, by their addresses; the rows themselves give the same. */
uint32_t emu_router_sum(const struct emu_router *router);
void emu_router_abort(struct emu_board *board);
void emu_router_progress(const struct emu_router *router, struct lora_router_record *record);
void emu_link_requests_run(struct emu_board *board);

#endif

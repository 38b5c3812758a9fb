/* Boards whose runtime does not answer any more, as the whole process knows them. One driver serves
 * all boards of a kind: where one board's call has not returned, the others are asked for a
 * register before a call of theirs may wait for long. */
#ifndef LORA_TRANSPORT_XRT_WATCHDOG_H
#define LORA_TRANSPORT_XRT_WATCHDOG_H

#include "transport_xrt_calls.h"

/* Of a board by its address; lives as long as the process. NULL: no host memory. */
struct xrt_place *xrt_place_of(const char *address);
/* 0, or what xrt_handle.stuck says of the call that the board's runtime still is in. */
unsigned xrt_place_stuck(struct xrt_place *place);
/* A call was given up; and one of those has returned after all. */
void xrt_place_left(struct xrt_place *place, unsigned stuck);
void xrt_place_back(struct xrt_place *place);

/* Every open board is known between these two. */
void xrt_watch(struct xrt_handle *board);
void xrt_unwatch(struct xrt_handle *board);

/* Around each call of a watched board. `answered`: it has returned, and the card had to answer. */
void xrt_enter(struct xrt_handle *board, const struct xrt_call *call);
void xrt_leave(struct xrt_handle *board, const struct xrt_call *call, int answered);

/* Asks each board that has not answered since another one fell silent for a register, all at
 * one time. Those that have not answered within the limit are stuck afterwards. Returns at once
 * where `board` has answered since. */
typedef struct lora_bounded_call *xrt_probe_fn(struct xrt_handle *board, void *kernel,
                                               uint32_t limit_ms, struct xrt_call *call);
void xrt_probe_silent(struct xrt_handle *board, xrt_probe_fn *begin, uint32_t limit_ms);

/* Marks the board stuck in this call; the first one is told. */
void xrt_give_up(struct xrt_handle *board, enum xrt_what what, uint32_t limit_ms);

#endif

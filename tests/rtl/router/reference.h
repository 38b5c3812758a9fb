/* The emulated boards' Routers, without the boards: the truth for the simulated ones. */
#ifndef ROUTER_REFERENCE_H
#define ROUTER_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "lora/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reference;

struct reference_outcome {
    uint32_t state, status, port;
    uint32_t sent, received, dropped;
    uint32_t sum;                                                 /* of a gather that is done */
    uint32_t waits, sent_by[LORA_PORTS], received_by[LORA_PORTS]; /* struct lora_router_record */
    uint32_t done[LORA_SEGMENTS];
};

struct reference *reference_new(uint32_t boards, uint32_t onchip_bytes);
void reference_free(struct reference *r);
uint8_t *reference_onchip(struct reference *r, uint32_t board);
void reference_cable(struct reference *r, uint32_t board, uint32_t port, uint32_t to,
                     uint32_t to_port);
void reference_down(struct reference *r, uint32_t board, uint32_t port);
void reference_start(struct reference *r, uint32_t board, const struct lora_gather *command,
                     const struct lora_list *list, const struct lora_step_state *state);
/* Moves what can move; `sent` gets each frame that leaves. */
void reference_pump(struct reference *r, uint32_t board,
                    void (*sent)(void *user, uint32_t port, const uint8_t *frame, uint32_t bytes),
                    void *user);
struct reference_outcome reference_result(const struct reference *r, uint32_t board);
/* A frame into the FIFO of a port, as its neighbour would send it; false: there is no room. */
bool reference_put(struct reference *r, uint32_t board, uint32_t port, const uint8_t *frame,
                   uint32_t bytes);
/* What comes out of a port that the test plays the neighbour of is taken away. */
void reference_empty(struct reference *r, uint32_t board, uint32_t port);
/* Goes on with the link test as far as it can; returns enum lora_unit_state. */
uint32_t reference_test(struct reference *r, uint32_t board, struct lora_link_test *test,
                        void (*sent)(void *user, uint32_t port, const uint8_t *frame,
                                     uint32_t bytes),
                        void *user);
void reference_serial(struct reference *r, uint32_t board, uint32_t serial);
/* Computes the CRC of a frame anew. */
void reference_seal(uint8_t *frame);

#ifdef __cplusplus
}
#endif

#endif

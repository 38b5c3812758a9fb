/* Alveo boards with a container of anybody's, for the lab's tools: memory banks and registers of
 * free-running cores, without lora_ctrl. A board so opened is in no cluster; one thread uses it. */
#ifndef LORA_XRT_H
#define LORA_XRT_H

#include <stdint.h>

#include "lora/transport.h"

struct lora_xrt_board;

/* `address` as in "xrt:ADDRESS". Loads the container and compares its uuid with the board's. */
int lora_xrt_open(const char *address, const char *container, struct lora_xrt_board **board,
                  struct lora_failure *failure);
void lora_xrt_close(struct lora_xrt_board *board);
/* A buffer object of `bytes` in memory `memory` of the container's topology (GROUP_TOPOLOGY where
 * there is one), which the host mirrors; *buffer numbers it. */
int lora_xrt_buffer(struct lora_xrt_board *board, uint32_t memory, uint64_t bytes, uint32_t *buffer,
                    struct lora_failure *failure);
int lora_xrt_write(struct lora_xrt_board *board, uint32_t buffer, uint64_t offset, const void *data,
                   uint64_t bytes, struct lora_failure *failure);
int lora_xrt_read(struct lora_xrt_board *board, uint32_t buffer, uint64_t offset, void *data,
                  uint64_t bytes, struct lora_failure *failure);
/* A core by its name in the IP layout, "kernel:instance", for this process alone; *core numbers
 * it. */
int lora_xrt_core(struct lora_xrt_board *board, const char *name, uint32_t *core,
                  struct lora_failure *failure);
int lora_xrt_core_read(struct lora_xrt_board *board, uint32_t core, uint32_t offset,
                       uint32_t *value, struct lora_failure *failure);
int lora_xrt_core_write(struct lora_xrt_board *board, uint32_t core, uint32_t offset,
                        uint32_t value, struct lora_failure *failure);

extern const struct lora_transport lora_transport_xrt;

#endif

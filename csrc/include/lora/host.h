/* The C host library: a cluster of opened boards. Logic above the seam: URIs, overlays' checks,
 * arenas and ranges, link bring-up, submit, poll, timeouts, the greedy token loop. */
#ifndef LORA_HOST_H
#define LORA_HOST_H

#include <stdint.h>

#include "lora/abi.h"
#include "lora/transport.h"

struct lora_cluster;

struct lora_timeouts { /* every wait of the library, microseconds of transport time */
    uint32_t size;
    uint32_t core_reset_us; /* hold of a link core's reset */
    uint32_t link_up_us;    /* until status is healthy on both ends */
    uint32_t link_test_us;
    uint32_t register_list_us;
    uint32_t step_us; /* more than the firmware's watchdog */
    uint32_t watchdog_ms;
    uint32_t checksum_us;
    uint32_t poll_us; /* between two polls */
};
void lora_timeouts_default(struct lora_timeouts *timeouts);

int lora_cluster_open(const char *const *uris, uint32_t count, struct lora_cluster **cluster,
                      struct lora_failure *failure);
void lora_cluster_close(struct lora_cluster *cluster);
int lora_cluster_set_timeouts(struct lora_cluster *cluster, const struct lora_timeouts *timeouts);
int lora_cluster_info(struct lora_cluster *cluster, uint32_t board, struct lora_board_info *info,
                      struct lora_failure *failure);
/* Loads the program and checks identity: board kind, ABI, firmware CRC. */
int lora_cluster_program(struct lora_cluster *cluster, uint32_t board,
                         const struct lora_program *program, uint32_t control_bank,
                         struct lora_failure *failure);

/* Memory. Every range is checked against the reserved arenas before the transport sees it. A write
 * may run in other threads beside every call but close, program, reserve and reset, to ranges that
 * nothing else uses: pages of the KV cache that no running step reads. */
int lora_cluster_reserve(struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                         uint64_t offset, uint64_t bytes, struct lora_failure *failure);
int lora_cluster_write(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                       const void *data, uint64_t bytes, struct lora_failure *failure);
int lora_cluster_read(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                      void *data, uint64_t bytes, struct lora_failure *failure);
/* Of each board, the part of this index: bytes of a bank, one after another in `data`. */
struct lora_part {
    uint64_t offset, bytes;
};
int lora_cluster_read_each(struct lora_cluster *cluster, uint32_t bank,
                           const struct lora_part *parts, uint32_t count, void *data,
                           struct lora_failure *failure);
int lora_cluster_checksum(struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                          uint64_t offset, uint64_t bytes, uint32_t *crc,
                          struct lora_failure *failure);
/* Sums of weights by the boards themselves. regions: the board takes the table (struct lora_scrub)
 * at `offset` of its control bank. scrub: all boards at once sum so many bytes each, 0: all
 * regions. What they have found comes with each completion record. */
int lora_cluster_regions(struct lora_cluster *cluster, uint32_t board, uint32_t offset,
                         struct lora_failure *failure);
int lora_cluster_scrub(struct lora_cluster *cluster, uint64_t bytes, struct lora_failure *failure);
/* What the board's memory controllers have counted. found->size is 0 where nobody tells. */
int lora_cluster_ecc(struct lora_cluster *cluster, uint32_t board, struct lora_ecc *found,
                     struct lora_failure *failure);
int lora_cluster_register_read(struct lora_cluster *cluster, uint32_t board, uint32_t block,
                               uint32_t offset, uint32_t *value, struct lora_failure *failure);

/* Links. */
struct lora_cable {
    uint32_t board_a, port_a, board_b, port_b;
};
struct lora_link_status {
    uint32_t status, configuration, frames_received, frames_with_errors, channel_down, rx_overflows;
};
/* Reset, wait for both ends, check configuration (mask: bits that must be as wanted), reset
 * counters, payload test both ways, far identity against the cables. */
int lora_cluster_links_up(struct lora_cluster *cluster, const struct lora_cable *cables,
                          uint32_t count, uint32_t configuration, uint32_t configuration_mask,
                          struct lora_failure *failure);
int lora_cluster_link_status(struct lora_cluster *cluster, uint32_t board, uint32_t port,
                             struct lora_link_status *status, struct lora_failure *failure);

/* What a port received, whatever a cabling map says: test frames and who sent them, ~0 nobody. */
struct lora_link_found {
    uint32_t status, sent, received, bad, peer_serial, peer_port;
};
/* Brings every port up and lets each say who it is: `found` has LORA_PORTS records a board. Ends
 * what lora_cluster_links_up has set up. */
int lora_cluster_links_discover(struct lora_cluster *cluster, struct lora_link_found *found,
                                struct lora_failure *failure);

/* Command lists and steps. */
int lora_cluster_register_list(struct lora_cluster *cluster, uint32_t board, uint32_t list_id,
                               uint32_t offset, struct lora_failure *failure);
/* Writes the step block (struct lora_step and what follows) to every board at block_offset, starts
 * all boards, then waits for all. `step` and `epoch` in the block are filled in here. A step that
 * fails on a link's CRC is redone once with a higher epoch. completions: one a board, may be
 * NULL. */
int lora_cluster_step(struct lora_cluster *cluster, void *block, uint32_t bytes,
                      uint32_t block_offset, struct lora_completion *completions,
                      struct lora_failure *failure);
/* The results of the last step did not arrive: the next one is the same again, which the boards
 * take as a redo. */
int lora_cluster_repeat(struct lora_cluster *cluster, struct lora_failure *failure);
/* Every board's last completion record, one a board; no access. */
int lora_cluster_completions(struct lora_cluster *cluster, struct lora_completion *completions,
                             struct lora_failure *failure);
/* What a board's last step wrote for the first `count` selected rows: read with its completion
 * record, at the latest step or generation that ended well. */
int lora_cluster_argmax(struct lora_cluster *cluster, uint32_t board, uint32_t count,
                        struct lora_argmax *found, struct lora_failure *failure);

/* Greedy decode wholly in C: from `token` at `position` of `sequence`, one row a step, the step's
 * argmax read from every board. Pages must be in the table already. */
struct lora_greedy {
    uint32_t size;
    uint32_t list_id, block_offset;
    uint32_t sequence, position, token; /* the pending token and its position */
    uint32_t slots[3];                  /* scratch slots used in turn */
    uint32_t pending_slot;              /* slot of the last uncommitted row, ~0 none */
    uint32_t max_tokens;
    const uint32_t *stop_tokens;
    uint32_t stop_count;
    /* Called with each token; a result other than 0 ends the loop. */
    int (*on_token)(void *context, uint32_t token);
    void *context;
    uint32_t emitted, last_token, last_slot; /* out: last_slot holds an uncommitted row */
    uint32_t adapter; /* 0 none, else 1 + the adapter slot that the rows name */
};
int lora_cluster_greedy(struct lora_cluster *cluster, struct lora_greedy *loop,
                        struct lora_failure *failure);

/* The same tokens without the host: boards choose them and go on, up to LORA_MAX_GENERATE a
 * doorbell, while the host follows (docs/firmware.md). */
struct lora_generation {
    uint32_t size;
    uint32_t list_id, block_offset;
    uint32_t sequence, position, token; /* the pending token and its position */
    uint32_t slots[3];                  /* scratch slots used in turn, the first row's first */
    uint32_t adapter;                   /* 0 none, else 1 + the adapter slot that the rows name */
    uint32_t max_tokens;
    uint32_t first_board; /* of rank 0 */
    uint32_t ring_offset; /* of rank 0's ring, bytes in the control bank */
    const uint32_t *stop_tokens;
    uint32_t stop_count;
    uint32_t page_count; /* pages that the headers put into the sequence's table, as far as their */
    const uint16_t *pages; /* tokens need them: page of tile i; may be 0 */
    /* Called with each token, once; a result other than 0 ends the generation within a token. */
    int (*on_token)(void *context, uint32_t token);
    void *context;
    /* Out, after failures too: tokens told, and rows that ran on all boards. Rows are more where
     * boards had gone on before they were stopped or a value was not finite, and one less where the
     * step of the last token has to be run again. Row i is in slots[i % 3]; all before the last are
     * committed. After a hang, boards hold nothing: `rows` are those whose tokens are known. */
    uint32_t emitted, rows;
};
int lora_cluster_generate(struct lora_cluster *cluster, struct lora_generation *generation,
                          struct lora_failure *failure);

struct lora_cluster_stats {
    uint64_t steps, redone_steps, frames_dropped;
    /* Accesses of all boards: transfers of board memory, doorbells, polls. */
    uint64_t memory_reads, memory_writes, doorbells, polls;
    uint64_t looks, tokens; /* reads of the token register, tokens that boards chose */
    uint64_t waited_us;     /* that the host let pass for boards; emulated ones: their time */
    uint64_t register_reads, register_writes; /* polls, looks and doorbells among them */
    uint32_t epoch, step;
};
int lora_cluster_get_stats(struct lora_cluster *cluster, struct lora_cluster_stats *stats);

/* Ends a running call soon with LORA_ERR_CANCELLED; from any thread or signal handler. The boards
 * may still be running: the next call waits for them first. */
void lora_cluster_cancel(struct lora_cluster *cluster);
/* Called now and then while boards are polled; a result other than 0 cancels. NULL for none. */
void lora_cluster_on_poll(struct lora_cluster *cluster, int (*cancelled)(void *context),
                          void *context);
/* After a hang: all boards through their runtime's reset, identity read again. Overlays, arenas,
 * lists and links are to be set up anew. */
int lora_cluster_reset(struct lora_cluster *cluster, struct lora_failure *failure);

/* For tests of what depends on it: completion records are taken without a look at their numbers. */
int lora_cluster_leave_unchecked(struct lora_cluster *cluster, uint32_t records,
                                 struct lora_failure *failure);

/* Text of the hang report or of the last failure's board state; "" when there is none. */
const char *lora_cluster_report(struct lora_cluster *cluster);
const char *lora_status_name(int status);
uint32_t lora_crc32(uint32_t crc, const void *data, uint64_t bytes); /* as zlib's crc32 */

#endif

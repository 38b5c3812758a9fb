/* The host library's own structures; what callers see is lora/host.h. */
#ifndef LORA_INTERNAL_H
#define LORA_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "lora/abi.h"
#include "lora/transport.h"
#include "lora/host.h"

#define LORA_NONE 0xffffffffu
#define LORA_MAX_CABLES (LORA_MAX_BOARDS * LORA_PORTS / 2)
#define LORA_REPORT_BYTES 131072 /* about 2 KiB a board */

typedef uint64_t lora_boards; /* a set of boards: a bit each */
_Static_assert(LORA_MAX_BOARDS <= 8 * sizeof(lora_boards), "a bit for every board");
/* Room for the control page and the link test while links come up before anything is reserved. */
#define LORA_CONTROL_MINIMUM (2 * LORA_CONTROL_PAGE)

struct lora_arena {
    uint32_t bank;
    uint64_t offset, bytes, base;
};

struct lora_board {
    const struct lora_transport *transport;
    void *handle;
    struct lora_board_info info;
    uint32_t programmed;
    uint32_t control_bank;
    uint32_t watchdog_ms; /* as last written */
    uint32_t in_flight;   /* started and not yet seen done */
    uint32_t arena_count;
    uint32_t kept_arenas; /* a reset took them off the board; the next program restores them */
    struct lora_arena arenas[LORA_MAX_ARENAS];
    uint64_t ecc_failures;             /* as last seen */
    struct lora_arena unreadable;      /* the last word that ECC could not correct; bytes 0: none */
    struct lora_completion completion; /* of the last run */
    struct lora_error_record error;
    struct lora_argmax argmax[LORA_MAX_ROWS]; /* of the last step's selected rows */
};

struct lora_cluster {
    uint32_t count;
    struct lora_board boards[LORA_MAX_BOARDS];
    struct lora_timeouts timeouts;
    uint32_t cable_count;
    struct lora_cable cables[LORA_MAX_CABLES];
    uint32_t epoch, step;    /* last ones used */
    uint32_t dirty;          /* the last step did not end well: boards may differ by one step */
    uint32_t uncounted;      /* a GENERATE did not end well: boards know how many steps it took */
    uint32_t unchecked;      /* for tests: records' numbers are not looked at */
    uint32_t cancel_written; /* LORA_REG_CANCEL of a board is not 0 */
    struct lora_cluster_stats stats;
    atomic_ullong memory_reads, memory_writes; /* weights are placed by several threads */
    uint32_t hung;
    struct lora_failure hang; /* the first one, told again until reset */
    atomic_int cancel;
    int (*cancelled)(void *context);
    void *cancel_context;
    uint64_t cancel_asked_ns; /* when the callback was last asked */
    char report[LORA_REPORT_BYTES];
};

static inline lora_boards lora_board_bit(uint32_t board) { return (lora_boards)1 << board; }

static inline lora_boards lora_all_boards(const struct lora_cluster *cluster) {
    return cluster->count ? ~(lora_boards)0 >> (8 * sizeof(lora_boards) - cluster->count) : 0;
}

struct lora_run { /* one operation of lora_ctrl */
    uint32_t operation, list_id, block_offset, bank;
    uint64_t offset, bytes;
    uint32_t timeout_us, watchdog_ms;
    uint32_t tokens; /* GENERATE: steps that it may take */
};

/* failure.c */
/* Sets all fields to "not concerned". Returns `failure`, or `spare` where the caller wants none. */
struct lora_failure *lora_failure_begin(struct lora_failure *failure, struct lora_failure *spare);
int lora_fail(struct lora_failure *failure, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A register reads all ones, which it cannot hold. Returns LORA_ERR_TRANSPORT. */
int lora_fail_gone(struct lora_failure *failure, const char *name, uint32_t value);
/* Puts the board before the message of a transport. Returns `status`. */
int lora_fail_board(const struct lora_cluster *cluster, uint32_t board, int status,
                    struct lora_failure *failure);

/* ecc.c */
/* Where a board of the mask has read a word that ECC could not correct since the last call, that is
 * the cause of `failure`, which is filled anew. Returns its code. */
int lora_blame_memory(struct lora_cluster *cluster, lora_boards mask, struct lora_failure *failure);

/* describe.c */
/* The failure that a board's error record tells. Returns its code. */
int lora_describe_error(const struct lora_cluster *cluster, uint32_t board,
                        struct lora_failure *failure);

/* uri.c */
int lora_transport_find(const char *uri, const struct lora_transport **transport,
                        const char **address, struct lora_failure *failure);

/* cluster.c */
int lora_check_board(const struct lora_cluster *cluster, uint32_t board,
                     struct lora_failure *failure);
int lora_check_ready(const struct lora_cluster *cluster, uint32_t board,
                     struct lora_failure *failure);
/* No board twice; a board without a program does not tell its serial (0) yet. */
int lora_check_serials(const struct lora_cluster *cluster, struct lora_failure *failure);

/* memory.c: `lora_check_range` expects a checked board. */
int lora_check_range(const struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                     uint64_t offset, uint64_t bytes, struct lora_failure *failure);
int lora_memory_release(struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                        uint64_t offset, struct lora_failure *failure);
/* Reserves what the board had before its reset, at the same banks and offsets. */
int lora_memory_restore(struct lora_cluster *cluster, uint32_t board, struct lora_failure *failure);
int lora_memory_read(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                     void *data, uint64_t bytes, struct lora_failure *failure);
int lora_memory_write(struct lora_cluster *cluster, uint32_t board, uint32_t bank, uint64_t offset,
                      const void *data, uint64_t bytes, struct lora_failure *failure);

/* registers: by transport, with the board in the failure. */
int lora_register_read(struct lora_cluster *cluster, uint32_t board, uint32_t block,
                       uint32_t offset, uint32_t *value, struct lora_failure *failure);
int lora_register_write(struct lora_cluster *cluster, uint32_t board, uint32_t block,
                        uint32_t offset, uint32_t value, struct lora_failure *failure);

/* run.c */
/* Starts the operation on all boards of the mask, then waits for all of them; the completion and
 * error records are in the boards. `failure` is the primary one. */
int lora_run(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
             struct lora_failure *failure);
/* Its two halves. Where not all could be started, those that were are waited for. */
int lora_run_begin(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
                   struct lora_failure *failure);
int lora_run_end(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
                 struct lora_failure *failure);

/* queue.c */
int lora_check_block(const struct lora_cluster *cluster, const struct lora_step *block,
                     uint32_t bytes, uint32_t block_offset, struct lora_failure *failure);
/* Gives the block the next step's number and epoch and writes it to all boards, none of which is
 * still reading the last one. */
int lora_place_block(struct lora_cluster *cluster, struct lora_step *block, uint32_t block_offset,
                     struct lora_failure *failure);

/* scrub.c */
/* Whether a board has said that weights differ. */
int lora_is_damaged(const struct lora_cluster *cluster);

/* numbering.c */
/* After a GENERATE that did not end well: the step that the board furthest behind has to run, as
 * the boards' registers tell. They all are idle. */
int lora_renumber(struct lora_cluster *cluster, struct lora_failure *failure);

/* greedy.c */
/* Three different scratch slots and a sequence, within the ABI's limits. */
int lora_check_slots(const char *what, const uint32_t slots[3], uint32_t sequence,
                     struct lora_failure *failure);
/* The first command of any board that wrote a value that is not finite. */
int lora_check_finite(const struct lora_cluster *cluster, struct lora_failure *failure);
/* The maximum logit of all boards; of equal ones the lowest token. */
int lora_select_token(const struct lora_cluster *cluster, uint32_t *token,
                      struct lora_failure *failure);

/* wait.c */
/* How long a wait has taken, in the boards' time: measured where that is this computer's, else the
 * sum of what was slept, which the caller adds to `slept_us`. */
struct lora_stopwatch {
    uint64_t began_ns, slept_us;
};
void lora_stopwatch_start(struct lora_stopwatch *watch);
uint64_t lora_stopwatch_us(const struct lora_stopwatch *watch,
                           const struct lora_transport *transport);
int lora_wait(struct lora_cluster *cluster, lora_boards mask, uint32_t timeout_us,
              struct lora_failure *failure);
/* The same from when the watch was started. */
int lora_wait_on(struct lora_cluster *cluster, lora_boards mask, uint32_t timeout_us,
                 struct lora_stopwatch *watch, struct lora_failure *failure);
/* Lets the boards' time pass, while the host does nothing else. */
int lora_let_pass(struct lora_cluster *cluster, uint32_t board, uint32_t microseconds,
                  struct lora_failure *failure);
/* The same between two looks at a board. */
int lora_pause(struct lora_cluster *cluster, uint32_t board, struct lora_stopwatch *watch,
               struct lora_failure *failure);
/* Waits for what an earlier, cancelled or failed run left in flight. */
int lora_drain(struct lora_cluster *cluster, struct lora_failure *failure);
int lora_cancel_wanted(struct lora_cluster *cluster);

/* outcome.c */
/* Whether a run failed because bytes changed on their way between boards, which may be chance. */
static inline int lora_is_damage(int status) {
    return status == LORA_ERR_LINK_CRC || status == LORA_ERR_GATHERED;
}
/* Reads the records of the boards in the mask and picks the failure that caused the others. */
/* The board whose Router is stuck, of those in `mask`, whose records are read; LORA_NONE. An error
 * of the first that cannot be read. */
int lora_stuck_router(struct lora_cluster *cluster, lora_boards mask, uint32_t *board,
                      struct lora_failure *failure);
int lora_outcome(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
                 struct lora_failure *failure);

/* cable.c */
/* Which end of which cable this port is: 1 and the far end, 0 where it has no cable. */
int lora_cable_peer(const struct lora_cluster *cluster, uint32_t board, uint32_t port,
                    uint32_t *peer_board, uint32_t *peer_port);
int lora_fail_link(const struct lora_cluster *cluster, uint32_t board, uint32_t port, int code,
                   struct lora_failure *failure, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* links.c */
/* To a register of every port of every board with a program. */
int lora_links_write(struct lora_cluster *cluster, uint32_t offset, uint32_t value,
                     struct lora_failure *failure);

/* link_test.c */
int lora_link_prove(struct lora_cluster *cluster, struct lora_failure *failure);
/* Payload both ways on every port that has a channel; what was received, board by board. */
int lora_link_receive(struct lora_cluster *cluster, struct lora_link_found *found,
                      struct lora_failure *failure);

/* report.c */
void lora_report_capture(struct lora_cluster *cluster, const char *reason);
const char *lora_unit_name(uint32_t unit);
const char *lora_opcode_name(uint32_t opcode);

#endif

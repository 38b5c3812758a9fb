/* Inside the emulated cluster: what memory, registers, links, units and firmware share. The
 * cluster's one lock guards all of it. Its holder may let other threads poll boards meanwhile, each
 * board on one thread. */
#ifndef EMU_BOARD_H
#define EMU_BOARD_H

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "firmware.h"
#include "hal.h"
#include "lora/abi.h"
#include "lora/kernels.h"
#include "lora/pool.h"
#include "lora/transport.h"
#include "lora/emu.h"
#include "aurora.h"
#include "ecc.h"
#include "router.h"
#include "profiler.h"

#define EMU_BANKS 64
#define EMU_BANK_ARENAS 32
#define EMU_CONTROL_BYTES (LORA_REG_ARENAS + LORA_MAX_ARENAS * 32)
#define EMU_ONCHIP_LIMIT (256u << 20)

struct emu_arena {
    uint64_t offset, bytes;
};

struct emu_bank {
    uint8_t *mapping; /* address space of the whole bank, committed arena by arena */
    uint64_t mapping_bytes;
    uint32_t arena_count;
    struct emu_arena arenas[EMU_BANK_ARENAS];
};

struct emu_memory {
    struct emu_bank banks[EMU_BANKS];
    uint8_t *base[EMU_BANKS];  /* what kernels see: NULL where nothing is reserved */
    uint64_t bytes[EMU_BANKS]; /* end of the last arena */
    uint64_t capacity[EMU_BANKS];
    uint64_t physical[EMU_BANKS]; /* address of the bank's first byte on the board */
};

struct emu_unit {
    uint32_t state; /* enum lora_unit_state */
    struct hal_unit_result result;
    struct emu_board *board;
    bool queued; /* for the next batch of kernels */
    bool plain;  /* done without anything to report: `result` was not written */
    struct lora_unit_call call;
    uint64_t ready_at; /* cycles: of a slow unit */
};

struct emu_link_test {
    bool active;
};

struct emu_trace {
    struct lora_trace_record *records;
    uint32_t capacity, first, count, dropped;
    uint64_t begin[LORA_UNITS];
};

struct emu_control_faults {
    bool done_early, registers_ones, cables_crossed;
    uint32_t record_steps, record_epochs; /* that records lag behind */
    uint32_t slow_units;                  /* bit per unit */
    uint64_t slow_cycles[LORA_UNITS];
    bool firmware_resets;
    uint32_t polls_to_reset;
    uint64_t stalled_until;                   /* cycles */
    uint32_t commands_to_failure[LORA_UNITS]; /* the last of these fails; 0: none does */
    uint32_t forgetful_units;                 /* bit per unit: forgets instead of failing */
    bool start_lost, clock_jumps;
    uint32_t polls_to_jump;
    uint64_t jump_cycles, clock_ahead;
    uint32_t reads_to_failure; /* the last of these fails; 0: none does */
    uint32_t resets_away;      /* with the last of these a lost board returns; 0: never */
};

/* Of the host's transfers into this board's memory. Several threads write at once. */
struct emu_write_faults {
    pthread_mutex_t lock;
    atomic_uint kind; /* enum lora_emu_fault_kind, 0: none */
    uint32_t pass, distance;
    uint32_t kept_bytes, kept_bank; /* of the transfer that arrives again */
    uint64_t kept_offset;
    uint8_t kept[4096];
};

struct emu_posted { /* the firmware's last write, on its way to memory */
    uint8_t *at;
    uint32_t bytes; /* 0: there is none */
    uint8_t data[sizeof(struct lora_completion)];
};

/* Lines of its own: boards run on different threads. In front what threads read of each other's
 * boards between two polls. */
struct emu_board {
    _Alignas(LORA_LINE_BYTES) struct emu_cluster *cluster;
    uint64_t clock; /* board time while the firmware runs, cycles; all meet at the cluster's */
    uint32_t index;
    bool programmed, in_flight;
    bool awake;         /* the firmware has something to look at */
    bool links_awake;   /* the Router has: a frame came, or a free slot for one */
    bool concurrent;    /* polled while other threads poll other boards: changes none of them */
    bool local_kernels; /* and every thread has a board: modest kernels are not shared */
    struct emu_link_test link_test;
    struct emu_link_requests link_requests;
    struct emu_router router;
    struct lora_board_info info;
    struct emu_memory memory;
    uint32_t control[EMU_CONTROL_BYTES / 4]; /* register file of lora_ctrl */
    uint32_t token_seen;                     /* LORA_REG_TOKEN as the host knows it */
    bool followed;                           /* the host looks at it while this run goes on */
    void *core;                              /* of the cluster's control */
    struct emu_unit units[LORA_UNITS];
    uint32_t queued; /* units that wait for a batch, in the order of their starts */
    struct emu_unit *queue[LORA_UNITS];
    struct emu_tally tally; /* of this poll, while the profiler is on */
    struct emu_port ports[LORA_PORTS];
    uint64_t weight_bytes;   /* that matmuls have read */
    uint32_t frames_dropped; /* not yet handed to the firmware with a unit's result */
    uint32_t stuck_units;    /* faults: bit per unit */
    bool completion_lost, done_lost, firmware_dead;
    uint32_t blind;    /* for tests: enum lora_emu_blind */
    bool core_stopped; /* its read got no answer: until the next program */
    struct emu_ecc ecc;
    atomic_bool lost; /* nothing of the board answers; writes beside a run hold no lock */
    bool until_reset; /* the faults end at the next reset */
    struct emu_control_faults control_faults;
    struct emu_write_faults write_faults;
    struct emu_trace trace;
    struct emu_posted posted;
};

struct emu_cluster {
    uint32_t id, boards;
    uint32_t clock_hz, link_configuration;
    const struct lora_kernels *kernels;
    const struct lora_control *control;
    struct lora_pool *pool; /* NULL where kernels cannot share work */
    pthread_mutex_t lock;
    uint32_t users; /* guarded by the registry */
    bool destroyed;
    bool has_far; /* a port has had a cable out of this process */
    struct emu_cluster *next;
    struct emu_plans plans;
    struct emu_profiler profiler;
    /* What threads read when a round of polls begins, on a line of its own. */
    _Alignas(LORA_LINE_BYTES) uint64_t now; /* board clock, cycles; one for all, as real time is */
    _Atomic uint32_t round;
    bool direct; /* boards file a gather without frames when they are polled */
    _Alignas(LORA_LINE_BYTES) const struct emu_router *routers[LORA_MAX_BOARDS]; /* by its ranks */
    struct emu_board board[];
};

/* failure.c: fills `failure` (which may be NULL) and returns `code`. */
int emu_fail(struct lora_failure *failure, int code, const struct emu_board *board,
             const char *format, ...) __attribute__((format(printf, 4, 5)));

/* cluster.c */
struct emu_cluster *emu_cluster_acquire(uint32_t id);
void emu_cluster_release(struct emu_cluster *cluster);
/* A use without the lock, for an open handle. */
void emu_cluster_hold(struct emu_cluster *cluster);
void emu_cluster_drop(struct emu_cluster *cluster);

/* A board sleeps until something of its own changes: a unit, a link, its start, or time. */
static inline void emu_wake(struct emu_board *board) { board->awake = board->links_awake = true; }

static inline bool emu_is_done(const struct emu_board *board) {
    return board->control[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE;
}

/* A token that the host has not seen. */
static inline bool emu_has_news(const struct emu_board *board) {
    return board->control[LORA_REG_TOKEN / 4] != board->token_seen;
}

/* polls.c: the firmware of every board that is awake is polled, and again as long as one gather
 * without frames follows another; false when none is awake. */
bool emu_boards_poll(struct emu_cluster *cluster);

/* scheduler.c: both expect the lock to be held. */
void emu_run(struct emu_cluster *cluster, const struct emu_board *until_done);
/* The same, no further than a token that the host has not seen. */
void emu_run_to_token(struct emu_cluster *cluster, const struct emu_board *board);
void emu_sleep(struct emu_cluster *cluster, uint32_t microseconds);
uint64_t emu_cycles(const struct emu_cluster *cluster, uint64_t microseconds);

/* faults.c: faults that last until a reset end. */
void emu_faults_reset(struct emu_board *board);

/* A lost board that returns with this reset is there again, without its memory. */
void emu_board_return(struct emu_board *board);

/* write_faults.c: the host's transfer, of which a fault may lose a part or all. LORA_ERR_RANGE:
 * there is no such range. LORA_ERR_TRANSPORT: the fault is an error of the transfer. */
void emu_write_fault_set(struct emu_board *board, uint32_t kind, uint32_t pass, uint32_t distance);
int emu_write(struct emu_board *board, uint32_t bank, uint64_t offset, const void *data,
              uint64_t bytes);

/* program.c */
int emu_program(struct emu_board *board, const struct lora_program *program,
                struct lora_failure *failure);
void emu_reset(struct emu_board *board);

/* memory.c */
void emu_memory_init(struct emu_memory *memory, const struct lora_board_info *info);
void emu_memory_clear(struct emu_memory *memory);
/* Drops all arenas, not their bytes: an arena at the same place finds them again. */
void emu_memory_forget(struct emu_memory *memory);
int emu_memory_reserve(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes,
                       struct lora_failure *failure);
int emu_memory_release(struct emu_board *board, uint32_t bank, uint64_t offset,
                       struct lora_failure *failure);
int emu_memory_onchip(struct emu_board *board, uint32_t bytes, struct lora_failure *failure);
/* Takes these arenas, which lie in a file, in place of all of the board's; lora_emu_attach. */
int emu_memory_attach(struct emu_board *board, const struct lora_arena_record *arenas,
                      uint32_t count, int fd, struct lora_failure *failure);
/* The bytes of a range, or NULL where it is not inside one arena. */
uint8_t *emu_memory_at(const struct emu_memory *memory, uint32_t bank, uint64_t offset,
                       uint64_t bytes);

/* registers.c: the host's view of lora_ctrl. */
void emu_control_program(struct emu_board *board, uint32_t firmware_crc);
int emu_control_read(struct emu_board *board, uint32_t offset, uint32_t *value,
                     struct lora_failure *failure);
int emu_control_write(struct emu_board *board, uint32_t offset, uint32_t value,
                      struct lora_failure *failure);
int emu_control_start(struct emu_board *board, struct lora_failure *failure);

/* weights_read.c: bytes of blocks that a matmul reads; which experts some row of an EXPERTS chose.
 */
uint64_t emu_weights_read(const struct lora_unit_call *call);
void emu_chosen(const struct lora_unit_call *call, bool chosen[LORA_MAX_EXPERTS]);

/* units.c */
void emu_units_init(struct emu_board *board);
void emu_unit_start(struct emu_board *board, uint32_t unit, const struct lora_command *command,
                    const struct lora_list *list, const struct lora_step_state *state);
uint32_t emu_unit_poll(struct emu_board *board, uint32_t unit, struct hal_unit_result *result);
void emu_unit_abort(struct emu_board *board, uint32_t unit);
/* Runs the kernels of all units that were started since; false when there are none. */
bool emu_units_run(struct emu_cluster *cluster);

/* dma.c, kv_moves.c: each returns an enum lora_status. */
int emu_dma(struct emu_board *board, const struct lora_command *command,
            const struct lora_list *list, const struct lora_step_state *state,
            struct hal_unit_result *result);
int emu_kv_store(struct emu_board *board, const struct lora_kv_store *command,
                 const struct lora_list *list, const struct lora_step_state *state);
int emu_kv_commit(struct emu_board *board, const struct lora_kv_commit *command,
                  const struct lora_list *list, const struct lora_step_state *state);

/* firmware_control.c: the firmware's host build as a control. */
extern const struct lora_control emu_firmware_control;

/* card_calls.c */
extern const struct lora_board_calls emu_card_calls;

/* link_test.c */
uint32_t emu_link_test_slice(struct emu_board *board, struct lora_link_test *test);

/* trace.c: only where records are kept */
void emu_trace_mark(struct emu_board *board, uint32_t index, const struct lora_command *command,
                    uint32_t rows, uint32_t end);

/* hal_host.c: the board that this thread's firmware runs on. */
void emu_hal_bind(struct emu_board *board);
struct emu_board *emu_hal_board(void);
/* As hal_read and hal_write; false: an error is the answer. */
bool emu_hal_reads(uint32_t bank, uint64_t offset, void *data, uint32_t bytes);
bool emu_hal_writes(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes);
/* Where its core is left at a read of memory that ECC cannot correct. */
jmp_buf *emu_hal_stop(void);

#endif

/* The firmware's own structures; what the outside sees is firmware.h. */
#ifndef LORA_FW_H
#define LORA_FW_H

#include <stddef.h>
#include <stdint.h>

#include "firmware.h"
#include "hal.h"
#include "lora/abi.h"

#define FW_NONE 0xffffffffu
#define FW_MAX_COMMANDS LORA_MAX_COMMANDS
#define FW_CHUNK_COMMANDS LORA_CHUNK_COMMANDS
#define FW_CHUNKS (FW_MAX_COMMANDS / FW_CHUNK_COMMANDS)
#define FW_CACHE_CHUNKS 8 /* shared by all units: they are near each other in a list */
#define FW_COMMAND_BYTES 64
#define FP32_INFINITY 0x7f800000u
#define FW_MAX_DIMENSION 0x100000u /* K, N and columns: keeps block numbers within 32 bits */
#define FW_SWEEP 32                /* commands taken in one poll by one unit */
#define FW_SWEEPS 4                /* over the units in one poll */
#define FW_SEEK 4                  /* chunks looked through in one poll by one unit */
#define FW_WATCHDOG_DEFAULT_MS 10000u
#define FW_CHECKSUM_SLICE 0x100000u

/* What a slice of work says of the run. FAILED: fw->error is filled. */
enum fw_outcome { FW_MORE, FW_WAITING, FW_OVER, FW_FAILED };

enum fw_phase {
    FW_PHASE_IDLE,
    FW_PHASE_SEAL,    /* REGISTER: CRC of the whole list, seal of each chunk */
    FW_PHASE_CHECK,   /* REGISTER: every command's fields and addresses */
    FW_PHASE_DRY_RUN, /* REGISTER: the counters, without the units */
    FW_PHASE_KV,      /* STEP: the header's KV operations, in order */
    FW_PHASE_KV_MOVE, /* STEP: data moves that must go before a table entry changes */
    FW_PHASE_ROWS,    /* STEP: the rows */
    FW_PHASE_RUN,     /* STEP: the list */
    FW_PHASE_CHECKSUM,
    FW_PHASE_LINK_TEST,
    FW_PHASE_REGIONS, /* REGIONS: the ranges of the table */
    FW_PHASE_SCRUB    /* SCRUB, and between two steps of a GENERATE */
};

/* Who runs the list of a step. */
enum fw_sequencer {
    FW_SOFTWARE,
    FW_SEQUENCER_DUE, /* the board's, once it has ended what it did before */
    FW_SEQUENCER_RUNS
};

struct fw_arena {
    uint64_t offset, bytes;
    uint32_t bank, reserved;
};

struct fw_list {
    struct lora_list header;
    uint32_t valid;
    uint32_t offset;                  /* of the header in the control bank */
    uint32_t kv_commit;               /* index of its first KV_COMMIT, FW_NONE without */
    uint32_t kv_committed, kv_stored; /* layers, up to the last one that its commands name */
    uint32_t ballot;                  /* index of its BALLOT, FW_NONE without */
    uint32_t received, passed; /* of its gathers FROM_PREVIOUS and TO_NEXT, FW_NONE without */
    uint32_t states;           /* whether a RECURRENCE keeps one behind full pages */
    struct lora_command ballot_command;
    uint32_t arena_count, arena_seal; /* the arenas its addresses were checked against */
    uint32_t seal[FW_CHUNKS];
};

struct fw_cursor {   /* one a unit: how far it is in the list */
    uint32_t index;  /* of the command that runs, or is looked at next */
    uint32_t loaded; /* `command` is the one at `index` */
    uint32_t state;  /* LORA_UNIT_IDLE or LORA_UNIT_BUSY */
    uint32_t rows;   /* that the command works on */
    uint32_t
        seen_events; /* fw->events when it was found waiting: until more it need not be asked */
    uint32_t groups[LORA_SEGMENTS]; /* GATHER: row groups signalled so far */
    struct lora_command command;
};

struct fw_scrub {    /* sums of weights: docs/firmware.md */
    int64_t credit;  /* bytes that may be summed */
    uint64_t at;     /* bytes of the region that are summed */
    uint64_t until;  /* SCRUB: state.bytes at its end, 0 for all regions */
    uint64_t began;  /* cycles: the command that runs */
    uint64_t earned; /* cycles: idle time is paid up to here */
    struct lora_scrub_state state;
    struct lora_region region; /* the one that is summed */
    uint32_t bank, table;      /* of the regions */
    uint32_t count, slice_bytes, step_bytes, idle_bytes, command_bytes;
    uint32_t index;
    uint32_t size;       /* of the command that runs, 0 none */
    uint32_t begun_step; /* the last step done when the region's sum began */
    uint32_t turn_step;  /* the same of this turn */
    uint32_t unwritten;  /* 1 + the region whose outcome is not in the table yet, 0 none */
    uint32_t left;       /* SCRUB: regions at most */
    uint32_t resume;     /* phase after sums in a GENERATE */
};

struct fw_undo { /* a page table entry as it was before the step */
    uint16_t sequence, tile, page;
};

struct fw_token_step { /* what a GENERATE's step did to lengths and slots */
    uint32_t valid;
    uint32_t commits;
    uint32_t sequence, slot, position;
};

struct fw_commit_range { /* tiles that this step's unmoved commits write; empty: first > last */
    uint16_t first, last;
};

struct fw {
    uint32_t booted;
    uint32_t phase, operation;
    uint32_t control_bank, block_offset;
    uint64_t started, progressed; /* cycles; of this token where there are several */
    uint64_t run_started;
    uint64_t timeout;  /* cycles until the watchdog, as set when the run began */
    uint32_t features; /* HAL_FEATURE_* */
    uint32_t arena_count;
    uint32_t arena_changes, arenas_known; /* the board's count of changes when they were loaded */
    uint32_t arena_hit;                   /* that was asked for last */
    uint32_t sealed_count, arenas_seal;   /* the seal of so many of them; FW_NONE: not known */
    struct fw_arena arenas[LORA_MAX_ARENAS];
    struct fw_list lists[LORA_MAX_LISTS];
    struct fw_list *list; /* that is registered or runs */
    struct lora_error_record error;
    struct lora_completion completion;

    /* Progress of REGISTER. */
    uint32_t scan, crc;
    uint32_t collective; /* number of the last GATHER, FW_NONE before the first */
    uint32_t dry_run_groups, dry_run_selected;

    /* The list's execution, live or dry-run. */
    uint32_t rows, selected;
    uint32_t live;      /* 0: a dry run, in which units finish at once */
    uint32_t end;       /* no unit looks at this command, nor behind it */
    uint32_t sequencer; /* enum fw_sequencer: who runs the list */
    uint32_t events;    /* rises with every counter, and when CONTROL passes a command */
    uint32_t polled;    /* a bit a unit: still busy when asked in this slice */
    struct fw_cursor cursors[LORA_UNITS];
    uint16_t counters[LORA_MAX_COUNTERS];
    uint32_t cached[FW_CACHE_CHUNKS];              /* chunk number, FW_NONE empty */
    uint16_t of_unit[FW_CACHE_CHUNKS][LORA_UNITS]; /* bit i: command i of the chunk is the unit's */
    struct lora_command cache[FW_CACHE_CHUNKS][FW_CHUNK_COMMANDS];

    /* STEP. state.lengths and state.slots are the tables themselves. */
    struct lora_step header;
    struct lora_step_state state;
    uint32_t last_step, last_epoch;
    uint32_t poisoned; /* the sequencer has told the neighbours */
    uint32_t accepted; /* this run's header was accepted: a failure restores and poisons */
    uint32_t scan_kv, moved_kv, scan_row;
    uint32_t committed[LORA_MAX_SCRATCH / 32]; /* slots that this step's header commits */
    uint32_t tables_seen[LORA_MAX_SEQUENCES / 32];
    uint32_t commits_seen[LORA_MAX_SEQUENCES / 32]; /* whose entry of `commits` counts */
    struct fw_commit_range commits[LORA_MAX_SEQUENCES];
    uint32_t used[LORA_MAX_SCRATCH / 32];    /* slots that may be valid */
    uint32_t touched[LORA_MAX_SCRATCH / 32]; /* slots that `before_slots` may have otherwise */
    uint32_t before_lengths[LORA_MAX_SEQUENCES];
    struct lora_slot before_slots[LORA_MAX_SCRATCH];
    uint32_t undo_count, undo_list; /* page table entries to restore, and whose table they are in */
    struct fw_undo undo[LORA_MAX_KV_OPS];

    /* GENERATE. */
    struct lora_generate generate;
    uint32_t token_count;                  /* that all boards agree on */
    uint32_t step_commits;                 /* this step's header has committed a row */
    uint32_t digest;                       /* of this step's gathers so far */
    uint32_t gathers, first_sum, last_sum; /* how many they were; of the first and the last */
    uint32_t votes_offset, ring_offset;
    struct fw_token_step behind; /* the step before this one: `before_*` are from before it */

    struct lora_link_test link_test;
    uint64_t checksum_offset, checksum_left;
    struct lora_vote votes[LORA_MAX_BOARDS]; /* of this step, by rank; too many for the stack */
    struct fw_scrub scrub;
};

/* fw_memory.c */
void fw_copy(void *target, const void *source, uint32_t bytes);
void fw_zero(void *target, uint32_t bytes);
typedef uint32_t __attribute__((may_alias)) fw_word;
static inline void fw_copy_command(struct lora_command *restrict target,
                                   const struct lora_command *restrict source) {
    fw_word *restrict to = (fw_word *)target;
    const fw_word *restrict from = (const fw_word *)source;
    for (uint32_t i = 0; i < sizeof *target / sizeof *to; i++) to[i] = from[i];
}
uint32_t fw_crc32(uint32_t crc, const void *data, uint32_t bytes);
uint32_t fw_seal(const void *data, uint32_t words);

/* fw_arena.c */
void fw_arenas_load(struct fw *fw);
uint32_t fw_arenas_seal(struct fw *fw, uint32_t count);
/* Whether [offset, offset+bytes) of a bank lies in one arena. */
int fw_in_arena(struct fw *fw, uint32_t bank, uint64_t offset, uint64_t bytes);
/* The same, filling the error record where it does not. FW_MORE or FW_FAILED. */
uint32_t fw_check_range(struct fw *fw, uint32_t bank, uint64_t offset, uint64_t bytes);

int fw_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes);

/* fw_error.c */
void fw_blame_none(struct fw *fw);
void fw_blame(struct fw *fw, uint32_t index, const struct lora_command *command);
/* Fills the error record's code, found, expected; always FW_FAILED. */
uint32_t fw_fail(struct fw *fw, uint32_t code, uint32_t found, uint32_t expected);

/* fw_fetch.c */
void fw_fetch_reset(struct fw *fw);
uint32_t fw_chunk_commands(const struct fw_list *list, uint32_t chunk);
/* The command at index, NULL (error filled) where the chunk no longer matches its seal. Valid until
 * the next call. */
const struct lora_command *fw_fetch(struct fw *fw, uint32_t index);
/* Moves *index, within its chunk, to the next command of the unit or of CONTROL: FW_MORE, and it is
 * *command, valid until the next call. FW_OVER: there is none, *index is the next chunk's first.
 * FW_FAILED. */
uint32_t fw_seek(struct fw *fw, uint32_t unit, uint32_t *index,
                 const struct lora_command **command);

/* fw_registry.c */
uint32_t fw_register_begin(struct fw *fw);
uint32_t fw_register_seal(struct fw *fw);
uint32_t fw_register_check(struct fw *fw);
void fw_register_finish(struct fw *fw);

/* fw_bounds.c */
struct fw_buffer { /* rows of activations */
    uint32_t bank, offset, stride;
    uint32_t row_bytes;
    uint32_t align; /* bytes */
};
static inline uint32_t fw_padded(uint32_t bytes) {
    return (bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES * LORA_LINE_BYTES;
}
uint32_t fw_check_counter(struct fw *fw, uint32_t counter, int segments);
uint32_t fw_check_equal(struct fw *fw, uint32_t found, uint32_t expected);
uint32_t fw_check_dimension(struct fw *fw, uint32_t value, uint32_t min);
uint32_t fw_check_buffer(struct fw *fw, const struct lora_list *list, struct fw_buffer buffer);
uint32_t fw_check_rows(struct fw *fw, const struct lora_list *list, struct fw_buffer buffer,
                       uint32_t rows);

/* fw_header.c, fw_check.c, fw_check_matrix.c, fw_check_experts.c, fw_check_recurrence.c,
 * fw_check_vector.c */
uint32_t fw_check_header(struct fw *fw, const struct fw_list *list);
uint32_t fw_check_command(struct fw *fw, uint32_t index, const struct lora_command *command);
uint32_t fw_check_weights(struct fw *fw, const struct lora_matrix *matrix);
uint32_t fw_check_matrix(struct fw *fw, const struct lora_list *list,
                         const struct lora_matrix *matrix);
/* Where `blocks` blocks lie by a matmul's fields. */
uint32_t fw_check_blocks(struct fw *fw, const struct lora_matrix *matrix, uint32_t blocks);
uint32_t fw_check_experts(struct fw *fw, const struct lora_list *list,
                          const struct lora_experts *command);
uint32_t fw_check_recurrence(struct fw *fw, const struct lora_list *list,
                             const struct lora_recurrence *command);
uint32_t fw_check_vector(struct fw *fw, const struct lora_list *list,
                         const struct lora_vector *command);

/* fw_adapter.c */
uint32_t fw_check_adapter_slots(struct fw *fw, const struct lora_list *list);
uint32_t fw_check_matrix_adapter(struct fw *fw, const struct lora_list *list,
                                 const struct lora_matrix *matrix);
uint32_t fw_check_adapter(struct fw *fw, const struct lora_list *list,
                          const struct lora_adapter *command);
uint32_t fw_check_row_adapter(struct fw *fw, const struct lora_row *row);

/* fw_counters.c */
/* A run begins; fw_execution_reset also clears what the firmware's dispatch needs. */
void fw_run_reset(struct fw *fw, uint32_t rows, uint32_t selected, uint32_t live);
void fw_execution_reset(struct fw *fw, uint32_t rows, uint32_t selected, uint32_t live);
uint32_t fw_command_rows(const struct fw *fw, const struct lora_command *command);
uint32_t fw_row_groups(uint32_t rows);
/* FW_NONE where the command may start, else the counter that it waits for. */
uint32_t fw_missing_counter(const struct fw *fw, const struct lora_command *command, uint32_t rows);
static inline int fw_may_start(const struct fw *fw, const struct fw_cursor *cursor) {
    const struct lora_command *command = &cursor->command;
    if (command->wait_counter == LORA_NO_COUNTER) return 1;
    if (command->flags & (LORA_FLAG_WAIT_SEGMENTS | LORA_FLAG_WAIT_GROUPS))
        return fw_missing_counter(fw, command, cursor->rows) == FW_NONE;
    return fw->counters[command->wait_counter] >= command->wait_value;
}
void fw_signal(struct fw *fw, struct fw_cursor *cursor);
void fw_signal_groups(struct fw *fw, struct fw_cursor *cursor,
                      const uint32_t groups[LORA_SEGMENTS]);

/* fw_dispatch.c */
uint32_t fw_dispatch(struct fw *fw); /* a few sweeps over the units, or until nothing moves */
/* Says in the error record what the run waits for. */
void fw_blame_stall(struct fw *fw);

/* fw_dry_run.c */
uint32_t fw_register_dry_run(struct fw *fw);

/* fw_sequence.c */
void fw_sequence_seal(const struct fw *fw, uint32_t chunk);
/* Whether the board's sequencer runs the list. */
int fw_has_sequencer(const struct fw *fw);
uint32_t fw_sequence(struct fw *fw); /* as fw_dispatch */

/* fw_unit.c */
void fw_unit_begin(struct fw *fw, uint32_t unit);
/* Polls a busy unit: FW_WAITING, FW_OVER (results taken into the completion record) or
 * FW_FAILED. */
uint32_t fw_unit_poll(struct fw *fw, uint32_t unit, struct hal_unit_result *result);
void fw_units_abort(struct fw *fw);

/* fw_step.c, fw_kv.c, fw_rows.c, fw_tables.c */
uint32_t fw_step_begin(struct fw *fw);
/* The step of fw->header, whose number is accepted: from its KV operations on. */
void fw_step_enter(struct fw *fw);
uint32_t fw_check_part(struct fw *fw, uint32_t offset, uint32_t count, uint32_t item);
uint32_t fw_step_kv(struct fw *fw);
uint32_t fw_step_kv_move(struct fw *fw);
uint32_t fw_step_rows(struct fw *fw);
uint32_t fw_step_start(struct fw *fw);
void fw_commits_reset(struct fw *fw);
void fw_tables_backup(struct fw *fw);
void fw_tables_restore(struct fw *fw);
void fw_state_restore(struct fw *fw); /* lengths and slots alone */
static inline void fw_mark(uint32_t *bits, uint32_t which) { bits[which / 32] |= 1u << which % 32; }
uint32_t fw_scratch_pages(const struct lora_list *list);
uint32_t fw_table_row_bytes(const struct lora_list *list);
uint32_t fw_table_page(const struct lora_list *list, uint32_t sequence, uint32_t tile);
uint32_t fw_table_write(struct fw *fw, uint32_t sequence, uint32_t tile, uint32_t page);
/* Whether tiles first..last-1 of a sequence name pages of the pool. */
uint32_t fw_table_check(struct fw *fw, uint32_t sequence, uint32_t first, uint32_t last);

/* fw_generate.c, fw_generate_check.c, fw_vote.c */
uint32_t fw_generate_begin(struct fw *fw);
/* Refuses what a GENERATE's header and row may not hold; the rest is checked as in any step. */
uint32_t fw_generate_check_op(struct fw *fw, const struct lora_kv_op *op);
uint32_t fw_generate_check_row(struct fw *fw, const struct lora_row *row);
/* All of a step's commands are done: the token and the next step (FW_MORE), or the end. */
uint32_t fw_generate_decide(struct fw *fw);
/* The step before this one ends the run, or this one failed: `before_*` are brought in order. */
void fw_generate_restore(struct fw *fw);
void fw_generate_finish(struct fw *fw);
uint32_t fw_check_ballot(struct fw *fw, const struct lora_list *list,
                         const struct lora_ballot *ballot, uint32_t index);
void fw_vote(struct fw *fw, const struct lora_command *command);
uint32_t fw_digest(uint32_t digest, uint32_t word);
/* Reads all boards' votes. FW_MORE, or FW_FAILED where one is not of this step, or where boards
 * differ in what they gathered. */
uint32_t fw_read_votes(struct fw *fw);
/* The end of a STEP: FW_OVER, or FW_FAILED as fw_read_votes. */
uint32_t fw_compare_gathers(struct fw *fw);
/* The winner of all boards' votes in *best, its token FW_NONE where one has a value that is not
 * finite; `cancel` is rank 0's. FW_MORE, or FW_FAILED as fw_read_votes. */
uint32_t fw_count_votes(struct fw *fw, struct lora_vote *best);

/* fw_service.c */
uint32_t fw_checksum_begin(struct fw *fw);
uint32_t fw_checksum(struct fw *fw);
/* One command that sums `bytes` of a bank, continued from `crc`. */
void fw_sum_begin(struct fw *fw, uint32_t bank, uint64_t offset, uint32_t bytes, uint32_t crc);
uint32_t fw_link_test_begin(struct fw *fw);
uint32_t fw_link_test(struct fw *fw);
void fw_link_test_store(struct fw *fw);

/* fw_regions.c, fw_scrub.c */
uint32_t fw_regions_begin(struct fw *fw);
uint32_t fw_regions(struct fw *fw);
/* A step is done. */
void fw_scrub_earn(struct fw *fw);
/* No operation runs. FW_OVER: nothing to do, FW_WAITING: a command runs. `control`: AP_CTRL. */
uint32_t fw_scrub_idle(struct fw *fw, uint32_t control);
/* Between two steps of a GENERATE: sums what is due first. */
uint32_t fw_scrub_between(struct fw *fw);
uint32_t fw_scrub_begin(struct fw *fw);
uint32_t fw_scrub_run(struct fw *fw);
/* An operation ends: writes back what is not in the table yet, and fills the completion record. */
void fw_scrub_complete(struct fw *fw);
/* The units were stopped. */
void fw_scrub_restart(struct fw *fw);

/* fw_complete.c */
uint64_t fw_timeout(void); /* cycles that the host gives a run */
uint32_t fw_watchdog_expired(const struct fw *fw);
void fw_complete(struct fw *fw);

#endif

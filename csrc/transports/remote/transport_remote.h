/* Inside the transports of boards behind a daemon. One connection a board; the daemon takes
 * messages in their order. Writes and register writes have no answer: what fails of them is told by
 * the next call that has one. */
#ifndef LORA_TRANSPORT_REMOTE_H
#define LORA_TRANSPORT_REMOTE_H

#include <pthread.h>

#include "address.h"
#include "channel.h"
#include "doorbell.h"
#include "internal.h"
#include "lora/remote.h"
#include "tls.h"

#define REMOTE_CONNECT_US 5000000u
#define REMOTE_ANSWER_US 20000000u /* longer than what a daemon waits for a runtime's call */
#define REMOTE_SLOW_US 180000000u  /* a container is loaded, a card is reset */

enum remote_run { REMOTE_IDLE, REMOTE_RUNNING, REMOTE_RAN, REMOTE_FAILED };

struct remote_ranges { /* what the host reads after a run: the next run's answer brings it along */
    uint32_t count;
    uint64_t bytes;
    struct wire_range range[WIRE_RANGES];
};

struct remote_handle {
    const char *scheme;
    char uri[256]; /* without the scheme */
    struct wire_address address;
    pthread_mutex_t lock; /* writers beside the one caller of all else */
    struct wire_channel channel;
    struct wire_tls *tls;
    uint32_t sequence;
    enum remote_run run;
    uint32_t run_sequence;
    struct lora_failure run_failure;
    struct remote_ranges asked; /* with the run */
    struct remote_ranges noted; /* reads since the last run */
    uint32_t arrived;           /* bit i: range i of `asked` lies in `results` */
    uint64_t result_at[WIRE_RANGES];
    uint8_t *results; /* WIRE_RANGES_BYTES */
    struct lora_access_counts counts;
};

/* transport_remote.c: the rest of the table. */
int remote_open(const char *scheme, const char *address, const struct wire_address *found,
                void **handle, struct lora_failure *failure);
void remote_close(void *handle);
int remote_info(void *handle, struct lora_board_info *info, struct lora_failure *failure);
int remote_reserve(void *handle, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                   struct lora_failure *failure);
int remote_release(void *handle, uint32_t bank, uint64_t offset, struct lora_failure *failure);
int remote_register_read(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                         struct lora_failure *failure);
int remote_register_write(void *handle, uint32_t block, uint32_t offset, uint32_t value,
                          struct lora_failure *failure);
int remote_poll_register(void *handle, uint32_t offset, uint32_t *value,
                         struct lora_failure *failure);
int remote_reset(void *handle, struct lora_failure *failure);
void remote_accesses(void *handle, struct lora_accesses *found);

/* transport_remote_open.c: connects, greets, and holds the board. */
int remote_connect(struct remote_handle *remote, struct lora_failure *failure);
void remote_disconnect(struct remote_handle *remote);

/* transport_remote_calls.c: a request and its answer; all expect the lock. `answer_bytes` must be
 * what comes. */
struct remote_call {
    uint32_t kind;
    const struct wire_part *parts;
    uint32_t part_count;
    void *answer;
    size_t answer_bytes;
    uint64_t limit_us;
};
int remote_call(struct remote_handle *remote, const struct remote_call *call,
                struct lora_failure *failure);
int remote_send(struct remote_handle *remote, uint32_t kind, const struct wire_part *parts,
                uint32_t count, struct lora_failure *failure);
/* Waits for the answer to `sequence`; its data are `*data` until the next receive. */
int remote_await(struct remote_handle *remote, uint32_t sequence, uint64_t limit_us,
                 struct wire_part *data, struct lora_failure *failure);

/* transport_remote_run.c */
int remote_submit(void *handle, const uint32_t arguments[LORA_ARGUMENTS],
                  struct lora_failure *failure);
int remote_poll(void *handle, uint32_t *run_state, struct lora_failure *failure);
int remote_sleep(void *handle, uint32_t microseconds, struct lora_failure *failure);

/* transport_remote_memory.c */
int remote_memory_read(void *handle, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                       struct lora_failure *failure);
int remote_memory_write(void *handle, uint32_t bank, uint64_t offset, const void *data,
                        uint64_t bytes, struct lora_failure *failure);

/* transport_remote_program.c */
int remote_program(void *handle, const struct lora_program *program, struct lora_failure *failure);

/* transport_remote_answer.c: the connection has died: `channel.why` tells. */
int remote_gone(const struct remote_handle *remote, struct lora_failure *failure);
/* Takes the answer to the run that is outstanding. */
void remote_take_run(struct remote_handle *remote, const struct wire_message *message);
void remote_forget_run(struct remote_handle *remote);
/* What an answer says: its status, with the failure that it carries. */
int remote_status(const struct wire_message *message, struct wire_part *data,
                  struct lora_failure *failure);

/* All calls of a remote board but `open`: entries of its struct lora_transport. */
#define REMOTE_CALLS                                                                               \
    .size = sizeof(struct lora_transport), .real_time = 1, .close = remote_close,                  \
    .info = remote_info, .program = remote_program, .reserve = remote_reserve,                     \
    .release = remote_release, .register_read = remote_register_read,                              \
    .register_write = remote_register_write, .memory_read = remote_memory_read,                    \
    .memory_write = remote_memory_write, .submit = remote_submit, .poll = remote_poll,             \
    .poll_register = remote_poll_register, .sleep = remote_sleep, .reset = remote_reset,           \
    .accesses = remote_accesses, .ecc = NULL /* the daemon does not pass it on */

#endif

/* Inside the board daemon: boards, who holds them, and sessions of connected hosts. */
#ifndef BOARDD_H
#define BOARDD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "channel.h"
#include "internal.h"
#include "lora/boardd.h"
#include "lora/emu.h"
#include "tls.h"

#define BOARDD_GREETING_US 5000000u
#define BOARDD_NOTICING_US 1000000u
#define BOARDD_LEAVING_US 5000000u /* a board of a host that has ended is freed within this */
#define BOARDD_CONTAINER (512ull << 20)
#define BOARDD_BOARDS 64
#define BOARDD_USERS 64

struct boardd_board {
    char name[WIRE_NAME];
    char uri[128];
    uint32_t emulated, index;
    bool held;    /* guarded by the daemon's lock, as all below */
    bool leaving; /* its host is gone: it will be free soon */
    char holder[2 * WIRE_NAME];
    uint32_t sessions;
    atomic_uint busy;
};

struct lora_boardd {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    atomic_bool stopping;
    uint32_t board_count;
    struct boardd_board boards[BOARDD_BOARDS];
    char token[WIRE_TOKEN];
    char folder[400];
    char keys[400];
    struct wire_tls *tls;
    uint32_t users[BOARDD_USERS], user_count;
    uint32_t speed;
    bool driving;
    pthread_t driver;          /* passes time in emulated boards */
    pthread_mutex_t emulating; /* one thread lets them run; the others find them done */
};

struct boardd_session {
    struct lora_boardd *boardd;
    struct boardd_board *board;
    struct wire_channel channel;
    const struct lora_transport *transport;
    void *handle;
    struct lora_board_info info;
    bool programmed, running;
    struct wire_run run;
    uint32_t run_sequence;
    uint64_t run_began_us;
    struct lora_failure kept; /* the first of what had no answer; code LORA_OK: none */
    uint32_t arena_count;
    struct lora_arena arenas[LORA_MAX_ARENAS];
    int container; /* file, -1: none */
    uint64_t container_bytes;
    char container_path[440];
    uint8_t *data; /* WIRE_DATA, of reads and of a run's results */
};

/* boards.c */
struct boardd_board *boardd_find(struct lora_boardd *boardd, const char *name);
int boardd_hold(struct lora_boardd *boardd, struct boardd_board *board, const char *who,
                struct lora_failure *failure);
void boardd_leave(struct lora_boardd *boardd, struct boardd_board *board);
void boardd_free(struct lora_boardd *boardd, struct boardd_board *board);

/* greeting.c: who is at the other end; false: it was refused and told so. `who` is filled. */
bool boardd_greeting(struct lora_boardd *boardd, struct wire_channel *channel,
                     struct wire_hello *hello, uint32_t *sequence, char who[2 * WIRE_NAME]);

/* answers.c */
int boardd_answer(struct wire_channel *channel, const struct wire_header *request, const void *data,
                  size_t bytes);
int boardd_refuse(struct wire_channel *channel, const struct wire_header *request,
                  const struct lora_failure *failure);
/* The failure is told as one of the daemon's host. */
int boardd_blame(int status, struct lora_failure *failure);

/* session.c: a host that holds a board, until it goes. */
void boardd_host(struct lora_boardd *boardd, struct wire_channel *channel,
                 const struct wire_hello *hello, uint32_t sequence, const char *who);

/* requests.c: false: the message is malformed, or the connection broken. */
bool boardd_request(struct boardd_session *session, const struct wire_message *message);

/* runs.c */
int boardd_start(struct boardd_session *session, const struct wire_run *run,
                 struct lora_failure *failure);
/* Lets the board run for a while. *state as of `poll`. */
int boardd_poll(struct boardd_session *session, uint32_t *state, struct lora_failure *failure);
/* Polls the run, and answers it where it is over. False: the connection is broken. */
bool boardd_follow(struct boardd_session *session);
/* The board is idle afterwards, by a reset if need be. */
void boardd_settle(struct boardd_session *session);

/* checks.c */
int boardd_check_range(const struct boardd_session *session, const struct wire_range *range,
                       struct lora_failure *failure);
int boardd_check_arena(const struct boardd_session *session, const struct wire_range *range,
                       struct lora_failure *failure);
int boardd_check_register(const struct boardd_session *session, uint32_t block, uint32_t offset,
                          struct lora_failure *failure);
int boardd_check_programmed(const struct boardd_session *session, struct lora_failure *failure);

/* containers.c: the pieces of a container become a file that only this user reads. */
int boardd_container_add(struct boardd_session *session, const uint8_t *data, size_t bytes,
                         struct lora_failure *failure);
void boardd_container_drop(struct boardd_session *session);

/* cable.c: carries frames of a port until the connection ends. `begin` joins it, else nothing is to
 * be done. */
struct boardd_cable;
struct boardd_cable *boardd_cable_begin(const struct boardd_board *board, uint32_t port,
                                        struct lora_failure *failure);
void boardd_cable_run(struct lora_boardd *boardd, struct boardd_cable *cable,
                      struct wire_channel *channel);
void boardd_cable_end(struct boardd_cable *cable);

/* cable_ends.c */
void boardd_cable_serve(struct lora_boardd *boardd, struct wire_channel *channel,
                        const struct wire_hello *hello, uint32_t sequence);

/* driver.c: emulated boards. */
int boardd_drive(struct lora_boardd *boardd);
/* Lets these boards run until nothing moves, or for a while. */
void boardd_run_emulated(struct lora_boardd *boardd, uint32_t emulated);

#endif

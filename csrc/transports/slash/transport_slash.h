/* Inside the V80's transport: what its files share. SLASH is AMD's platform for that card; its
 * daemon vrtd hands out memory, BARs and DMA as file descriptors over a socket. */
#ifndef LORA_TRANSPORT_SLASH_H
#define LORA_TRANSPORT_SLASH_H

#include <stdatomic.h>
#include <stdint.h>

#include "bounded.h"
#include "doorbell.h"
#include "internal.h"
#include "lora/slash.h"
#include "transport_slash_tar.h"

#define SLASH_HBM_BANKS 32
#define SLASH_BANKS (SLASH_HBM_BANKS + 1)
#define SLASH_DDR_BANK SLASH_HBM_BANKS
#define SLASH_HBM_BASE 0x4000000000ull
#define SLASH_DDR_BASE 0x60000000000ull
#define SLASH_HBM_BYTES (1ull << 30) /* a pseudo-channel: two of the allocator's regions */
#define SLASH_DDR_BYTES (32ull << 30)
#define SLASH_REGION_BYTES (512ull << 20) /* also the maximum of a buffer */
#define SLASH_GRANULE (64ull << 20)
#define SLASH_BUFFERS 255 /* a board, over all its users */
#define SLASH_PAGE 4096u  /* vrtd 1.0.0 wraps longer transfers inside one page: wrong data */
#define SLASH_BAR 0
#define SLASH_ANSWER_MS 5000 /* vrtd answers in milliseconds unless it hangs */

enum slash_opcode {
    SLASH_COUNT = 0,
    SLASH_INFO = 1,
    SLASH_BAR_INFO = 2,
    SLASH_BAR_FD = 3,
    SLASH_DESIGN = 8,
    SLASH_CLOCK = 9,
    SLASH_BUFFER_OPEN = 10,
    SLASH_BUFFER_CLOSE = 11,
    SLASH_BY_BDF = 12,
    SLASH_HOTPLUG = 13,
    SLASH_SENSORS = 14
};
#define LORA_SLASH_PACKET 4096
#define SLASH_USER_CLOCK 1 /* region 0 is the service clock */
#define SLASH_CLOCK_SET 1
struct __attribute__((packed)) slash_clock_body {
    uint32_t device, hz;
    uint8_t operation, region;
};
#define SLASH_INTERNAL 6 /* vrtd's answer to a buffer request when the board has no buffer left */
#define SLASH_AUTH 7
#define SLASH_BUSY 8         /* and when its memory is used up */
#define SLASH_SHELL_LOCKED 9 /* the development branch's, for boards that were booted by JTAG */

/* vrtd's requests come in two layouts under one version number; the size of the answer to request 1
 * tells which. */
enum slash_generation { SLASH_RELEASE = 0, SLASH_DEVELOPMENT = 1 };
enum slash_shell {
    SLASH_SHELL_SERVICE = 1,
    SLASH_SHELL_COMPUTE = 2
}; /* of the development branch */

struct slash_wire { /* one connection, used by one thread at a time */
    int socket;     /* -1: closed, or out of step after a request without an answer */
    uint32_t sequence;
    enum slash_generation generation;
    uint32_t shell; /* that the board has; 0 unknown */
};

struct slash_request {
    uint16_t opcode;
    const void *body;
    uint16_t body_bytes;
    int fd; /* sent along, -1 none */
    void *answer;
    uint16_t answer_bytes; /* exactly, or at most where `answer_any` is set */
    uint16_t answer_any;
    int *answer_fd; /* NULL: none is expected */
    uint32_t timeout_ms;
    uint16_t result;       /* out: vrtd's return */
    uint16_t answer_found; /* out: bytes */
};

struct slash_buffer {
    uint64_t physical, bytes;
    int fd;
};

struct slash_arena {
    uint32_t bank, piece_count;
    uint64_t offset, bytes, base;
    struct slash_buffer *pieces; /* adjacent on the board */
};

#define SLASH_DESIGNS 8
struct slash_archive {
    int fd;
    uint32_t count;
    struct tar_member designs[SLASH_DESIGNS];
};

struct slash_handle {
    struct slash_wire wire;
    char bdf[32];
    uint32_t device; /* vrtd's index; may change with a reset */
    int bar_fd;
    volatile uint32_t *bar;
    uint64_t bar_bytes;
    uint64_t block_base[LORA_BLOCKS];
    struct lora_doorbell bell;
    struct lora_access_counts counts;
    uint32_t programmed, buffer_count, arena_count;
    atomic_int stuck; /* enum slash_access of one that never ended; 0 none */
    struct slash_arena arenas[LORA_MAX_ARENAS];
};

/* transport_slash_wire.c */
const char *slash_socket_path(void);
const char *slash_return_name(uint32_t code); /* of an answer; "unknown" */
int slash_connect(struct slash_wire *wire, struct lora_failure *failure);
void slash_disconnect(struct slash_wire *wire);
/* Sends, waits, checks. A return of vrtd other than 0 is LORA_ERR_TRANSPORT with it in `result`. */
int slash_call(struct slash_wire *wire, struct slash_request *request,
               struct lora_failure *failure);
/* Whether the daemon still holds its end. */
int slash_alive(const struct slash_wire *wire);

/* transport_slash_watchdog.c: of the daemon at the socket `path`. How long a request may wait
 * whose limit is `limit_ms`; none was answered within `waited_ms`; one was answered. */
uint32_t slash_watchdog_limit(const char *path, uint32_t limit_ms);
void slash_watchdog_after(const char *path, uint32_t waited_ms);
void slash_watchdog_over(void);

/* transport_slash_board.c: finding, opening and resetting a board. */
int slash_board_open(struct slash_handle *handle, struct lora_failure *failure);
/* Looks up vrtd's index of the board again, which may change when the bus is scanned. */
int slash_board_find(struct slash_handle *handle, struct lora_failure *failure);
void slash_board_close(struct slash_handle *handle);
int slash_reset(void *handle, struct lora_failure *failure);

/* transport_slash_memory.c */
int slash_reserve(void *handle, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                  struct lora_failure *failure);
int slash_release(void *handle, uint32_t bank, uint64_t offset, struct lora_failure *failure);
int slash_memory_read(void *handle, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                      struct lora_failure *failure);
int slash_memory_write(void *handle, uint32_t bank, uint64_t offset, const void *data,
                       uint64_t bytes, struct lora_failure *failure);
void slash_release_all(struct slash_handle *handle);

/* transport_slash_dma.c: exactly one of `from` and `to` is given. */
int slash_move(struct slash_handle *handle, const struct slash_arena *arena, uint64_t at,
               const uint8_t *from, uint8_t *to, uint64_t bytes, struct lora_failure *failure);
/* transport_slash_calls.c */
enum slash_access { SLASH_TRANSFER = 1, SLASH_REGISTER = 2 };
/* lora_bounded with the kind's limit. A failure once it is over: what `call` leads to is kept. */
int slash_bounded(struct slash_handle *handle, enum slash_access kind, lora_bounded_fn *act,
                  void *call, size_t bytes, struct lora_failure *failure);
/* LORA_ERR_TRANSPORT once an access has not ended in time. */
int slash_check_stuck(struct slash_handle *handle, struct lora_failure *failure);

/* transport_slash_bar.c: no mapping may outlive the design behind it. */
int slash_bar_map(struct slash_handle *handle, struct lora_failure *failure);
void slash_bar_unmap(struct slash_handle *handle);

/* transport_slash_register.c */
int slash_register_read(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                        struct lora_failure *failure);
int slash_register_write(void *handle, uint32_t block, uint32_t offset, uint32_t value,
                         struct lora_failure *failure);

/* transport_slash_program.c */
int slash_program(void *handle, const struct lora_program *program, struct lora_failure *failure);

/* transport_slash_archive.c: the designs of a vrtbin, in the order in which they are loaded. */
int slash_archive_open(const char *path, struct slash_archive *archive,
                       struct lora_failure *failure);
void slash_archive_close(struct slash_archive *archive);
/* A descriptor with a design's bytes, at their begin. */
int slash_archive_design(const struct slash_archive *archive, uint32_t index, int *fd,
                         struct lora_failure *failure);

#endif

/* Alveo boards through XRT: what the files of this transport share. */
#ifndef LORA_TRANSPORT_XRT_H
#define LORA_TRANSPORT_XRT_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "doorbell.h"
#include "internal.h"

#define XRT_BANKS 34 /* at most, of any board */
#define XRT_NAME 64

/* A board that the runtime serves, as boards/NAME.yaml has it: its banks of HBM first, then those
 * of DDR. */
struct xrt_facts {
    uint32_t kind; /* enum lora_board_kind */
    const char *name;
    uint32_t hbm_banks, ddr_banks;
    uint64_t hbm_bytes, ddr_bytes; /* of one */
};

/* The runtime's C interface, by name in libxrt_coreutil.so.2. The xcl entries lie in the driver's
 * own library, which the runtime loads when the first device is opened. */
struct xrt_api {
    void *(*device_open)(unsigned int index);
    void *(*device_open_bdf)(const char *bdf);
    int (*device_close)(void *device);
    int (*device_load)(void *device, const char *path);
    int (*device_uuid)(void *device, unsigned char uuid[16]);
    void *(*device_shim)(void *device);
    void *(*bo_alloc)(void *device, size_t bytes, uint64_t flags, uint32_t memory);
    int (*bo_free)(void *bo);
    void *(*bo_map)(void *bo);
    uint64_t (*bo_address)(void *bo);
    int (*bo_sync)(void *bo, int direction, size_t bytes, size_t offset);
    void *(*kernel_open)(void *device, const unsigned char uuid[16], const char *name);
    int (*kernel_close)(void *kernel);
    int (*kernel_read)(void *kernel, uint32_t offset, uint32_t *value);
    int (*kernel_write)(void *kernel, uint32_t offset, uint32_t value);
};

struct xrt_ip_api {
    int (*index)(void *shim, const char *name);
    int (*open)(void *shim, const unsigned char uuid[16], unsigned int index, _Bool shared);
    int (*close)(void *shim, const unsigned char uuid[16], unsigned int index);
    int (*read)(void *shim, uint32_t index, uint32_t offset, uint32_t *value);
    int (*write)(void *shim, uint32_t index, uint32_t offset, uint32_t value);
};

/* What a container's own sections say. */
struct xrt_container {
    unsigned char uuid[16];
    int32_t memory[XRT_BANKS];    /* index in the topology that the runtime counts by, -1 none */
    uint64_t bytes[XRT_BANKS];    /* capacity */
    uint8_t connected[XRT_BANKS]; /* reached by lora_ctrl */
    char unit[LORA_BLOCKS][XRT_NAME]; /* "kernel:instance" by enum lora_block, "" none */
    uint64_t unit_base[LORA_BLOCKS];
};

struct xrt_arena {
    uint32_t bank;
    uint64_t offset, bytes;
    void *bo;
    uint8_t *mirror; /* the buffer object's host copy */
};

struct xrt_place;
struct xrt_watch { /* transport_xrt_watchdog.c's */
    struct xrt_handle *next;
    struct xrt_place *place;
    void *kernel; /* that can be asked for a register */
    uint32_t calls, probed, answered;
};

struct xrt_handle {
    struct xrt_handle *next; /* open handles, guarded by the lock of xrt_lock() */
    char address[64];
    void *device, *kernel, *shim;
    int link_index[LORA_PORTS]; /* -1: no context is open */
    uint32_t serial;
    const struct xrt_facts *facts; /* of the last overlay's board, NULL before the first */
    struct xrt_container container;
    pthread_mutex_t sync; /* one transfer of a board at a time */
    atomic_uint stuck;    /* the call that has not returned in time: limit in ms << 8 | 1 + what */
    struct xrt_watch watch;
    struct lora_doorbell bell;
    struct lora_access_counts counts;
    uint32_t arena_count;
    struct xrt_arena arenas[LORA_MAX_ARENAS];
};

/* transport_xrt_api.c: resolved once; NULL with `failure` filled. */
const struct xrt_api *xrt_api(struct lora_failure *failure);
const struct xrt_ip_api *xrt_ip_api(struct lora_failure *failure);
/* How many boards the runtime finds, ~0 where it cannot tell; after the first one was opened. */
uint32_t xrt_board_count(void);
/* One thread of a process at a time opens, loads or closes devices: the runtime is not safe
 * here. */
void xrt_lock(void);
void xrt_unlock(void);

/* The runtime's software emulation replaces the program's signal handlers, and its own end the
 * process when any child ends. So they are kept and put back around the calls that do it. */
#define XRT_SIGNALS 6
struct xrt_signals {
    struct sigaction kept[XRT_SIGNALS];
};
void xrt_signals_keep(struct xrt_signals *signals);
void xrt_signals_put_back(const struct xrt_signals *signals);

/* transport_xrt_calls.c: a failure that names the call if one has not returned in time. */
int xrt_check_stuck(struct xrt_handle *board, struct lora_failure *failure);

/* transport_xrt_container.c */
const struct xrt_facts *xrt_facts_of(uint32_t kind, struct lora_failure *failure);
int xrt_container_read(const char *path, const struct xrt_facts *facts,
                       struct xrt_container *container, struct lora_failure *failure);
int xrt_container_uuid(const char *path, unsigned char uuid[16], struct lora_failure *failure);
uint32_t xrt_bank_count(const struct xrt_facts *facts);
void xrt_bank_name(const struct xrt_facts *facts, uint32_t bank, char name[16]);
uint64_t xrt_bank_usable(const struct xrt_facts *facts, uint32_t bank);

/* transport_xrt_memory.c */
int xrt_reserve(void *handle, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                struct lora_failure *failure);
int xrt_release(void *handle, uint32_t bank, uint64_t offset, struct lora_failure *failure);
int xrt_memory_read(void *handle, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                    struct lora_failure *failure);
int xrt_memory_write(void *handle, uint32_t bank, uint64_t offset, const void *data, uint64_t bytes,
                     struct lora_failure *failure);
void xrt_release_all(struct xrt_handle *handle);
/* A buffer object with its host copy; returns its address. Both stay NULL where it is refused. */
uint64_t xrt_allocate(struct xrt_handle *board, struct xrt_arena *arena, uint32_t memory,
                      uint64_t bytes);
enum xrt_direction { XRT_TO_DEVICE = 0, XRT_FROM_DEVICE = 1 };
/* `at` and `bytes` lie inside the arena. */
int xrt_transfer(struct xrt_handle *board, const struct xrt_arena *arena, int direction,
                 uint64_t at, uint64_t bytes, struct lora_failure *failure);

/* transport_xrt_program.c */
int xrt_program(void *handle, const struct lora_program *program, struct lora_failure *failure);
/* With the lock held: loads a container whose uuid the handle has, and compares it with the
 * board's. */
int xrt_load(struct xrt_handle *board, const char *path, struct lora_failure *failure);
/* A context of a core without a control protocol: its index, or -1. */
void xrt_find_shim(struct xrt_handle *board);
int xrt_open_core(struct xrt_handle *board, const char *name);
void xrt_close_core(struct xrt_handle *board, uint32_t index);
/* Gives back kernel and link contexts, not the device. */
void xrt_unload(struct xrt_handle *handle);

extern const struct lora_transport lora_transport_xrt;

#endif

/* The seam. One table of functions a transport fills (csrc/transports); nothing above it knows
 * which one runs. Every function returns an enum lora_status and fills `failure` when it is
 * not LORA_OK; none prints or aborts. Handles are used by one thread at a time, but for writes to
 * memory; different handles by different threads. */
#ifndef LORA_TRANSPORT_H
#define LORA_TRANSPORT_H

#include <stdint.h>

/* Who failed, where, and with which numbers; message is one line without a newline. */
struct lora_failure {
    uint32_t size;
    uint32_t code; /* enum lora_status */
    int32_t board; /* index in the cluster, -1 none */
    int32_t bank, port;
    int32_t peer_board, peer_port;
    uint32_t index, opcode, unit, counter, row; /* ~0 where not concerned */
    uint32_t found, expected;
    uint64_t offset, requested, available, capacity; /* bytes */
    char message[256];
};

enum lora_block {
    LORA_BLOCK_CONTROL = 0,
    LORA_BLOCK_LINK0 = 1,
    LORA_BLOCK_LINK1 = 2,
    LORA_BLOCKS = 3
};

struct lora_board_info {
    uint32_t size;
    uint32_t board_kind; /* enum lora_board_kind */
    uint32_t serial;     /* unique in the cluster; 0: not known before an overlay is loaded */
    uint32_t bank_count;
    uint64_t bank_bytes[63];
    char name[32];    /* "u280" */
    char address[64]; /* as opened */
};

/* What a manifest says that a transport must know; the overlay reader fills it. */
struct lora_program {
    uint32_t size;
    uint32_t board_kind;
    uint32_t abi;
    uint32_t onchip_bytes;  /* activation buffer */
    uint64_t block_base[3]; /* register blocks by enum lora_block */
    const uint8_t *image;   /* firmware image with its header */
    uint64_t image_bytes;
    const char *container; /* vendor container's path, NULL where the transport needs none */
    uint32_t clock_hz;     /* of the kernels; 0: as the container sets it */
    uint32_t reserved;
};

enum lora_run_state { LORA_RUN_BUSY = 0, LORA_RUN_DONE = 1 };

/* Accesses to a board since it was opened, polls and looks among the register reads. */
struct lora_accesses {
    uint64_t register_reads, register_writes, memory_reads, memory_writes;
};

/* What a board's memory controllers have counted since it was opened: reads of words with one wrong
 * bit, which they corrected, and with two, which failed. By bank; words of 64 bits. */
struct lora_ecc {
    uint32_t size; /* 0: the runtime tells nothing */
    uint32_t bank; /* of the last read that failed, with `offset`; where `failures` is above 0 */
    uint64_t offset, failures;
    uint64_t corrected[63], uncorrected[63];
};

struct lora_transport {
    uint32_t size;
    const char *scheme; /* "emu" */
    /* 1: board time is this computer's, so timeouts are measured; 0: boards have a clock of their
     * own, which only `sleep` moves, so timeouts count what was slept. */
    uint32_t real_time;
    /* `address` is the URI without "scheme:". */
    int (*open)(const char *address, void **handle, struct lora_failure *failure);
    void (*close)(void *handle);
    int (*info)(void *handle, struct lora_board_info *info, struct lora_failure *failure);
    int (*program)(void *handle, const struct lora_program *program, struct lora_failure *failure);
    /* An arena covers [offset, offset+bytes) of a bank; base is its physical address. */
    int (*reserve)(void *handle, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                   struct lora_failure *failure);
    int (*release)(void *handle, uint32_t bank, uint64_t offset, struct lora_failure *failure);
    int (*register_read)(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                         struct lora_failure *failure);
    int (*register_write)(void *handle, uint32_t block, uint32_t offset, uint32_t value,
                          struct lora_failure *failure);
    int (*memory_read)(void *handle, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                       struct lora_failure *failure);
    /* Several threads may write different ranges of one handle at once: loading packs weights on
     * all cores. What nothing else uses may also be written beside every call but close, program,
     * reserve, release and reset: K and V of a prompt come into pages that no step reads while
     * steps run. Such a write does not wait for the run. */
    int (*memory_write)(void *handle, uint32_t bank, uint64_t offset, const void *data,
                        uint64_t bytes, struct lora_failure *failure);
    /* Start lora_ctrl with the registers OPERATION..CONTROL_BANK as given (11 words from 0x10).
     * Registers that hold their value already are not written. */
    int (*submit)(void *handle, const uint32_t arguments[11], struct lora_failure *failure);
    /* Never blocks longer than one slice of work. Reads and so clears the done bit. */
    int (*poll)(void *handle, uint32_t *run_state, struct lora_failure *failure);
    /* Lets boards run as poll does, no further than a change of this register of lora_ctrl since it
     * was last read, and reads it: how a host follows a run that tells of its progress. */
    int (*poll_register)(void *handle, uint32_t offset, uint32_t *value,
                         struct lora_failure *failure);
    /* Lets board time pass; emulated boards run on their own clock, so it may return at once. */
    int (*sleep)(void *handle, uint32_t microseconds, struct lora_failure *failure);
    /* The runtime's own reset: contents of memory, arenas and the program are lost; the handle
     * stays and identity may be read again. */
    int (*reset)(void *handle, struct lora_failure *failure);
    void (*accesses)(void *handle, struct lora_accesses *found);
    /* NULL: the runtime tells nothing. */
    int (*ecc)(void *handle, struct lora_ecc *found, struct lora_failure *failure);
};

#endif

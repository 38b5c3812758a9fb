/* The transport of emulated boards: "emu:CLUSTER/BOARD". */
#include <stdlib.h>
#include <string.h>

#include "board.h"
#include "doorbell.h"

struct emu_handle {
    struct emu_cluster *cluster;
    struct emu_board *board;
    char address[64];
    struct lora_access_counts counts;
};

static struct lora_access_counts *counts_of(void *handle) {
    return &((struct emu_handle *)handle)->counts;
}

static struct emu_board *lock(void *handle) {
    struct emu_handle *open = handle;
    pthread_mutex_lock(&open->cluster->lock);
    return open->board;
}

static int unlock(struct emu_board *board, int status) {
    pthread_mutex_unlock(&board->cluster->lock);
    return status;
}

/* What every access to a board that has left the bus gets. */
static int gone(const struct emu_board *board, struct lora_failure *failure) {
    if (!board->lost) return LORA_OK;
    return emu_fail(failure, LORA_ERR_TRANSPORT, board, "board %u: no answer; it has left the bus",
                    board->index);
}

/* A decimal number without sign or space; false leaves *at where it was. */
static bool parse_number(const char **at, uint32_t *value) {
    const char *from = *at;
    uint64_t total = 0;
    for (; *from >= '0' && *from <= '9' && total <= ~0u; from++)
        total = total * 10 + (uint32_t)(*from - '0');
    if (from == *at || total > ~0u) return false;
    *value = (uint32_t)total;
    *at = from;
    return true;
}

static bool parse_address(const char *address, uint32_t *cluster, uint32_t *board) {
    const char *at = address;
    return at && parse_number(&at, cluster) && *at++ == '/' && parse_number(&at, board) &&
           *at == '\0';
}

static int emu_open(const char *address, void **handle, struct lora_failure *failure) {
    uint32_t id, index;
    if (!parse_address(address, &id, &index))
        return emu_fail(failure, LORA_ERR_URI, NULL, "emu:%.64s: expected emu:CLUSTER/BOARD",
                        address ? address : "");
    struct emu_cluster *cluster = emu_cluster_acquire(id);
    if (!cluster)
        return emu_fail(failure, LORA_ERR_URI, NULL, "emu:%s: no emulated cluster %u", address, id);
    int status = LORA_OK;
    struct emu_handle *open = NULL;
    if (index >= cluster->boards)
        status = emu_fail(failure, LORA_ERR_URI, NULL, "emu:%s: the cluster has boards 0..%u",
                          address, cluster->boards - 1);
    else if (!(open = calloc(1, sizeof *open)))
        status = emu_fail(failure, LORA_ERR_MEMORY, NULL, "emu:%s: no host memory", address);
    if (open) {
        open->cluster = cluster;
        open->board = &cluster->board[index];
        strncpy(open->address, address, sizeof open->address - 1);
        emu_cluster_hold(cluster);
        *handle = open;
    }
    emu_cluster_release(cluster);
    return status;
}

static void emu_close(void *handle) {
    struct emu_handle *open = handle;
    if (!open) return;
    emu_cluster_drop(open->cluster);
    free(open);
}

static int emu_info(void *handle, struct lora_board_info *info, struct lora_failure *failure) {
    (void)failure;
    struct emu_board *board = lock(handle);
    *info = board->info;
    memcpy(info->address, ((struct emu_handle *)handle)->address, sizeof info->address);
    return unlock(board, LORA_OK);
}

static int emu_load(void *handle, const struct lora_program *program,
                    struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = gone(board, failure);
    return unlock(board, status ? status : emu_program(board, program, failure));
}

static int emu_reserve(void *handle, uint32_t bank, uint64_t offset, uint64_t bytes, uint64_t *base,
                       struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = gone(board, failure);
    if (status == LORA_OK) status = emu_memory_reserve(board, bank, offset, bytes, failure);
    if (status == LORA_OK) *base = board->memory.physical[bank] + offset;
    return unlock(board, status);
}

static int emu_release(void *handle, uint32_t bank, uint64_t offset, struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    return unlock(board, emu_memory_release(board, bank, offset, failure));
}

static int check_block(const struct emu_board *board, uint32_t block,
                       struct lora_failure *failure) {
    if (board->lost) return gone(board, failure);
    if (block >= LORA_BLOCKS)
        return emu_fail(failure, LORA_ERR_ARGUMENT, board,
                        "board %u: register block %u, expected 0..%d", board->index, block,
                        LORA_BLOCKS - 1);
    if (!board->programmed)
        return emu_fail(failure, LORA_ERR_TRANSPORT, board,
                        "board %u: no program is loaded, so no register answers", board->index);
    return LORA_OK;
}

static int emu_register_read(void *handle, uint32_t block, uint32_t offset, uint32_t *value,
                             struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = check_block(board, block, failure);
    lora_count(&counts_of(handle)->register_reads);
    if (status == LORA_OK && board->control_faults.registers_ones) *value = ~0u;
    else if (status == LORA_OK && block == LORA_BLOCK_CONTROL)
        status = emu_control_read(board, offset, value, failure);
    else if (status == LORA_OK)
        *value = emu_link_read(&board->ports[block - LORA_BLOCK_LINK0], offset);
    return unlock(board, status);
}

static int emu_register_write(void *handle, uint32_t block, uint32_t offset, uint32_t value,
                              struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = check_block(board, block, failure);
    lora_count(&counts_of(handle)->register_writes);
    if (status == LORA_OK && board->control_faults.registers_ones) return unlock(board, status);
    if (status == LORA_OK && block == LORA_BLOCK_CONTROL)
        status = emu_control_write(board, offset, value, failure);
    else if (status == LORA_OK)
        emu_link_write(&board->ports[block - LORA_BLOCK_LINK0], offset, value);
    return unlock(board, status);
}

/* The activation buffer is on the board only; the host sees the banks that it reserved. */
static uint8_t *host_range(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes,
                           struct lora_failure *failure) {
    uint8_t *at = bank < board->info.bank_count ? emu_memory_at(&board->memory, bank, offset, bytes)
                                                : NULL;
    if (at) return at;
    emu_fail(failure, LORA_ERR_RANGE, board,
             "board %u bank %u: bytes %#llx..%#llx are not inside one reserved arena", board->index,
             bank, (unsigned long long)offset, (unsigned long long)(offset + bytes));
    if (failure) {
        failure->bank = (int32_t)bank;
        failure->offset = offset;
        failure->requested = bytes;
        failure->available = bank < EMU_BANKS ? board->memory.bytes[bank] : 0;
        failure->capacity = bank < EMU_BANKS ? board->memory.capacity[bank] : 0;
    }
    return NULL;
}

static int broken(const struct emu_board *board, const char *way, struct lora_failure *failure) {
    return emu_fail(failure, LORA_ERR_TRANSPORT, board,
                    "board %u: a transfer %s its memory ended in an error", board->index, way);
}

static int emu_memory_read(void *handle, uint32_t bank, uint64_t offset, void *data, uint64_t bytes,
                           struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = gone(board, failure);
    if (status) return unlock(board, status);
    lora_count(&counts_of(handle)->memory_reads);
    uint32_t *left = &board->control_faults.reads_to_failure;
    if (*left && --*left == 0) {
        if (!(board->blind & LORA_BLIND_TRANSFERS))
            return unlock(board, broken(board, "from", failure));
        memset(data, 0, bytes);
        return unlock(board, LORA_OK);
    }
    const uint8_t *at = host_range(board, bank, offset, bytes, failure);
    if (at && emu_ecc_any(&board->ecc) && emu_ecc_read(board, bank, offset, bytes))
        return unlock(board, broken(board, "from", failure));
    if (at && bytes) memcpy(data, at, bytes);
    return unlock(board, at ? LORA_OK : LORA_ERR_RANGE);
}

static int emu_memory_write(void *handle, uint32_t bank, uint64_t offset, const void *data,
                            uint64_t bytes, struct lora_failure *failure) {
    /* Without the lock, which a run holds as long as it computes: arenas stay as they are. */
    struct emu_board *board = ((struct emu_handle *)handle)->board;
    int status = gone(board, failure);
    if (status) return status;
    lora_count(&counts_of(handle)->memory_writes);
    if (!host_range(board, bank, offset, bytes, failure)) return LORA_ERR_RANGE;
    status = emu_write(board, bank, offset, data, bytes);
    return status == LORA_ERR_TRANSPORT ? broken(board, "to", failure) : status;
}

static int emu_submit(void *handle, const uint32_t arguments[11], struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = check_block(board, LORA_BLOCK_CONTROL, failure);
    if (status == LORA_OK && board->control_faults.registers_ones) return unlock(board, LORA_OK);
    if (status == LORA_OK) status = emu_control_start(board, failure);
    if (status) return unlock(board, status);
    uint32_t *held = &board->control[LORA_REG_OPERATION / 4];
    for (uint32_t i = 0; i < LORA_ARGUMENTS; i++) {
        if (held[i] == arguments[i]) continue;
        lora_count(&counts_of(handle)->register_writes);
        held[i] = arguments[i];
    }
    lora_count(&counts_of(handle)->register_writes);
    return unlock(board, LORA_OK);
}

static int emu_poll(void *handle, uint32_t *run_state, struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = check_block(board, LORA_BLOCK_CONTROL, failure);
    if (status) return unlock(board, status);
    lora_count(&counts_of(handle)->register_reads);
    emu_run(board->cluster, board);
    uint32_t control = 0;
    if (board->control_faults.registers_ones) {
        *run_state = LORA_RUN_DONE;
        return unlock(board, LORA_OK);
    }
    status = emu_control_read(board, LORA_REG_AP_CTRL, &control, failure);
    *run_state = control & LORA_AP_DONE ? LORA_RUN_DONE : LORA_RUN_BUSY;
    return unlock(board, status);
}

static int emu_poll_register(void *handle, uint32_t offset, uint32_t *value,
                             struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    int status = check_block(board, LORA_BLOCK_CONTROL, failure);
    if (status) return unlock(board, status);
    lora_count(&counts_of(handle)->register_reads);
    emu_run_to_token(board->cluster, board);
    *value = ~0u;
    if (board->control_faults.registers_ones) return unlock(board, LORA_OK);
    return unlock(board, emu_control_read(board, offset, value, failure));
}

static int emu_sleep_us(void *handle, uint32_t microseconds, struct lora_failure *failure) {
    (void)failure;
    struct emu_board *board = lock(handle);
    emu_sleep(board->cluster, microseconds);
    return unlock(board, LORA_OK);
}

static int emu_reset_board(void *handle, struct lora_failure *failure) {
    struct emu_board *board = lock(handle);
    emu_board_return(board);
    int status = gone(board, failure);
    if (status == LORA_OK) emu_reset(board);
    return unlock(board, status);
}

static void emu_accesses(void *handle, struct lora_accesses *found) {
    lora_accesses_of(counts_of(handle), found);
}

static int emu_ecc_told(void *handle, struct lora_ecc *found, struct lora_failure *failure) {
    (void)failure;
    struct emu_board *board = lock(handle);
    *found = board->ecc.told;
    found->size = sizeof *found;
    return unlock(board, LORA_OK);
}

const struct lora_transport lora_transport_emu = {
    .size = sizeof(struct lora_transport),
    .scheme = "emu",
    .open = emu_open,
    .close = emu_close,
    .info = emu_info,
    .program = emu_load,
    .reserve = emu_reserve,
    .release = emu_release,
    .register_read = emu_register_read,
    .register_write = emu_register_write,
    .memory_read = emu_memory_read,
    .memory_write = emu_memory_write,
    .submit = emu_submit,
    .poll = emu_poll,
    .poll_register = emu_poll_register,
    .sleep = emu_sleep_us,
    .reset = emu_reset_board,
    .accesses = emu_accesses,
    .ecc = emu_ecc_told,
};

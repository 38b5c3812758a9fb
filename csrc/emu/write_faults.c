/* The host's transfers into memory, and what faults do to them: one is lost, cut, misplaced, or
 * arrives a second time. */
#include "board.h"

#include <string.h>

#include "stream_copy.h"

static int put(struct emu_board *board, uint32_t bank, uint64_t offset, const void *data,
               uint64_t bytes) {
    uint8_t *at = emu_memory_at(&board->memory, bank, offset, bytes);
    if (at && bytes) stream_copy(at, data, bytes);
    if (at && emu_ecc_any(&board->ecc)) emu_ecc_written(board, bank, offset, bytes);
    return at ? LORA_OK : LORA_ERR_RANGE;
}

void emu_write_fault_set(struct emu_board *board, uint32_t kind, uint32_t pass, uint32_t distance) {
    struct emu_write_faults *faults = &board->write_faults;
    pthread_mutex_lock(&faults->lock);
    faults->pass = pass;
    faults->distance = distance;
    faults->kept_bytes = 0;
    atomic_store(&faults->kind, kind);
    pthread_mutex_unlock(&faults->lock);
}

/* The fault's kind if it strikes this transfer, else 0. */
static uint32_t struck(struct emu_write_faults *faults) {
    uint32_t kind = atomic_load(&faults->kind);
    if (kind == 0 || faults->kept_bytes) return 0;
    if (faults->pass > 0) {
        faults->pass--;
        return 0;
    }
    if (kind != LORA_FAULT_WRITE_TWICE) atomic_store(&faults->kind, 0);
    return kind;
}

static void keep(struct emu_write_faults *faults, uint32_t bank, uint64_t offset, const void *data,
                 uint64_t bytes) {
    if (bytes == 0 || bytes > sizeof faults->kept) return;
    memcpy(faults->kept, data, bytes);
    faults->kept_bytes = (uint32_t)bytes;
    faults->kept_bank = bank;
    faults->kept_offset = offset;
}

static void put_kept(struct emu_board *board) {
    struct emu_write_faults *faults = &board->write_faults;
    (void)put(board, faults->kept_bank, faults->kept_offset, faults->kept, faults->kept_bytes);
    faults->kept_bytes = 0;
    atomic_store(&faults->kind, 0);
}

static int write_faultily(struct emu_board *board, uint32_t bank, uint64_t offset, const void *data,
                          uint64_t bytes) {
    struct emu_write_faults *faults = &board->write_faults;
    uint64_t beyond = offset + faults->distance;
    bool again = faults->kept_bytes > 0;
    int there = emu_memory_at(&board->memory, bank, offset, bytes) ? LORA_OK : LORA_ERR_RANGE;
    switch (struck(faults)) {
    case LORA_FAULT_WRITE_FAILS:
        return board->blind & LORA_BLIND_TRANSFERS ? LORA_OK : LORA_ERR_TRANSPORT;
    case LORA_FAULT_WRITE_LOST: return there;
    case LORA_FAULT_WRITE_SHORT: return put(board, bank, offset, data, bytes / 2);
    case LORA_FAULT_WRITE_MISPLACED:
        if (there == LORA_OK) (void)put(board, bank, beyond, data, bytes);
        return there;
    case LORA_FAULT_WRITE_TWICE: keep(faults, bank, offset, data, bytes); break;
    default: break;
    }
    there = put(board, bank, offset, data, bytes);
    if (again) put_kept(board);
    return there;
}

int emu_write(struct emu_board *board, uint32_t bank, uint64_t offset, const void *data,
              uint64_t bytes) {
    struct emu_write_faults *faults = &board->write_faults;
    if (!atomic_load_explicit(&faults->kind, memory_order_relaxed))
        return put(board, bank, offset, data, bytes);
    pthread_mutex_lock(&faults->lock);
    int status = write_faultily(board, bank, offset, data, bytes);
    pthread_mutex_unlock(&faults->lock);
    return status;
}

/* Board memory. A bank reserves address space for its whole capacity, so base + offset holds for
 * all of its arenas. An arena's pages become usable when it is reserved and take memory when first
 * written. */
#define _GNU_SOURCE
#include "board.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ull
#define HUGE (2ull << 20)
#define MIB(bytes) ((double)(bytes) / (1 << 20))

void emu_memory_init(struct emu_memory *memory, const struct lora_board_info *info) {
    uint64_t address = 0;
    for (uint32_t bank = 0; bank < info->bank_count; bank++) {
        memory->capacity[bank] = info->bank_bytes[bank];
        memory->physical[bank] = address;
        address += info->bank_bytes[bank];
    }
}

static void unmap(struct emu_memory *memory, uint32_t bank) {
    struct emu_bank *entry = &memory->banks[bank];
    if (entry->mapping) munmap(entry->mapping, entry->mapping_bytes);
    memset(entry, 0, sizeof *entry);
    memory->base[bank] = NULL;
    memory->bytes[bank] = 0;
}

void emu_memory_clear(struct emu_memory *memory) {
    for (uint32_t bank = 0; bank < EMU_BANKS; bank++) unmap(memory, bank);
    memory->capacity[LORA_BANK_ONCHIP] = 0;
}

void emu_memory_forget(struct emu_memory *memory) {
    for (uint32_t bank = 0; bank < EMU_BANKS; bank++) {
        memory->banks[bank].arena_count = 0;
        memory->bytes[bank] = 0;
    }
    unmap(memory, LORA_BANK_ONCHIP);
    memory->capacity[LORA_BANK_ONCHIP] = 0;
}

/* Address space only: PROT_NONE costs neither memory nor commit charge. */
static bool map_bank(struct emu_memory *memory, uint32_t bank) {
    struct emu_bank *entry = &memory->banks[bank];
    if (entry->mapping) return true;
    uint64_t bytes = memory->capacity[bank] + 2 * HUGE;
    void *mapping = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                         0);
    if (mapping == MAP_FAILED) return false;
    entry->mapping = mapping;
    entry->mapping_bytes = bytes;
    memory->base[bank] = (uint8_t *)(((uintptr_t)mapping + HUGE - 1) / HUGE * HUGE);
    return true;
}

/* Huge pages only where they lie inside the arena: a small one must not cost 2 MiB. */
static bool commit(struct emu_memory *memory, uint32_t bank, uint64_t offset, uint64_t bytes) {
    uint64_t first = offset / PAGE * PAGE;
    uint64_t last = (offset + bytes + PAGE - 1) / PAGE * PAGE;
    if (mprotect(memory->base[bank] + first, last - first, PROT_READ | PROT_WRITE)) return false;
    uint64_t huge_first = (first + HUGE - 1) / HUGE * HUGE;
    uint64_t huge_last = last / HUGE * HUGE;
    if (huge_first < huge_last) /* advice: failing costs speed only */
        (void)madvise(memory->base[bank] + huge_first, huge_last - huge_first, MADV_HUGEPAGE);
    return true;
}

static void insert_arena(struct emu_memory *memory, uint32_t bank, uint64_t offset,
                         uint64_t bytes) {
    struct emu_bank *entry = &memory->banks[bank];
    uint32_t at = entry->arena_count++;
    for (; at > 0 && entry->arenas[at - 1].offset > offset; at--)
        entry->arenas[at] = entry->arenas[at - 1];
    entry->arenas[at] = (struct emu_arena){offset, bytes};
    const struct emu_arena *last = &entry->arenas[entry->arena_count - 1];
    memory->bytes[bank] = last->offset + last->bytes;
}

static uint64_t reserved_bytes(const struct emu_bank *bank) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < bank->arena_count; i++) total += bank->arenas[i].bytes;
    return total;
}

static bool overlaps(const struct emu_bank *bank, uint64_t offset, uint64_t bytes) {
    for (uint32_t i = 0; i < bank->arena_count; i++) {
        const struct emu_arena *arena = &bank->arenas[i];
        if (offset < arena->offset + arena->bytes && arena->offset < offset + bytes) return true;
    }
    return false;
}

static int bank_full(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes,
                     const char *why, struct lora_failure *failure) {
    uint64_t capacity = board->memory.capacity[bank];
    uint64_t available = capacity - reserved_bytes(&board->memory.banks[bank]);
    emu_fail(failure, LORA_ERR_BANK_FULL, board,
             "board %u bank %u: arena of %.1f MiB at offset %#llx %s; %.1f of %.1f MiB are free",
             board->index, bank, MIB(bytes), (unsigned long long)offset, why, MIB(available),
             MIB(capacity));
    if (failure) {
        failure->bank = (int32_t)bank;
        failure->offset = offset;
        failure->requested = bytes;
        failure->available = available;
        failure->capacity = capacity;
    }
    return LORA_ERR_BANK_FULL;
}

static int bad_bank(struct emu_board *board, uint32_t bank, struct lora_failure *failure) {
    return emu_fail(failure, LORA_ERR_ARGUMENT, board, "board %u (%s) has banks 0..%u, not %u",
                    board->index, board->info.name, board->info.bank_count - 1, bank);
}

int emu_memory_reserve(struct emu_board *board, uint32_t bank, uint64_t offset, uint64_t bytes,
                       struct lora_failure *failure) {
    struct emu_memory *memory = &board->memory;
    if (bank >= board->info.bank_count) return bad_bank(board, bank, failure);
    if (bytes == 0 || offset % LORA_LINE_BYTES || bytes % LORA_LINE_BYTES)
        return emu_fail(failure, LORA_ERR_ARGUMENT, board,
                        "board %u bank %u: an arena is whole lines of 64 bytes, not %llu at %#llx",
                        board->index, bank, (unsigned long long)bytes, (unsigned long long)offset);
    uint64_t capacity = memory->capacity[bank];
    if (offset > capacity || bytes > capacity - offset)
        return bank_full(board, bank, offset, bytes, "goes beyond the bank's end", failure);
    if (overlaps(&memory->banks[bank], offset, bytes))
        return bank_full(board, bank, offset, bytes, "overlaps another arena", failure);
    if (memory->banks[bank].arena_count == EMU_BANK_ARENAS)
        return bank_full(board, bank, offset, bytes, "is one arena too many", failure);
    if (!map_bank(memory, bank) || !commit(memory, bank, offset, bytes))
        return emu_fail(failure, LORA_ERR_MEMORY, board,
                        "board %u bank %u: the system gave no address space for %.1f MiB",
                        board->index, bank, MIB(bytes));
    insert_arena(memory, bank, offset, bytes);
    return LORA_OK;
}

int emu_memory_release(struct emu_board *board, uint32_t bank, uint64_t offset,
                       struct lora_failure *failure) {
    struct emu_memory *memory = &board->memory;
    if (bank >= board->info.bank_count) return bad_bank(board, bank, failure);
    struct emu_bank *entry = &memory->banks[bank];
    uint32_t at = 0;
    while (at < entry->arena_count && entry->arenas[at].offset != offset) at++;
    if (at == entry->arena_count)
        return emu_fail(failure, LORA_ERR_RANGE, board, "board %u bank %u: no arena at %#llx",
                        board->index, bank, (unsigned long long)offset);
    struct emu_arena gone = entry->arenas[at];
    for (; at + 1 < entry->arena_count; at++) entry->arenas[at] = entry->arenas[at + 1];
    if (--entry->arena_count == 0) {
        unmap(memory, bank);
        return LORA_OK;
    }
    /* Whole pages go back to the system; a page shared with a neighbour is only cleared. */
    uint64_t first = (gone.offset + PAGE - 1) / PAGE * PAGE;
    uint64_t last = (gone.offset + gone.bytes) / PAGE * PAGE;
    if (first >= last) {
        memset(memory->base[bank] + gone.offset, 0, gone.bytes);
    } else {
        memset(memory->base[bank] + gone.offset, 0, first - gone.offset);
        memset(memory->base[bank] + last, 0, gone.offset + gone.bytes - last);
        (void)madvise(memory->base[bank] + first, last - first, MADV_DONTNEED);
    }
    const struct emu_arena *end = &entry->arenas[entry->arena_count - 1];
    memory->bytes[bank] = end->offset + end->bytes;
    return LORA_OK;
}

int emu_memory_onchip(struct emu_board *board, uint32_t bytes, struct lora_failure *failure) {
    struct emu_memory *memory = &board->memory;
    unmap(memory, LORA_BANK_ONCHIP);
    memory->capacity[LORA_BANK_ONCHIP] = bytes;
    if (!map_bank(memory, LORA_BANK_ONCHIP) || !commit(memory, LORA_BANK_ONCHIP, 0, bytes))
        return emu_fail(failure, LORA_ERR_MEMORY, board,
                        "board %u: no memory for an activation buffer of %u bytes", board->index,
                        bytes);
    insert_arena(memory, LORA_BANK_ONCHIP, 0, bytes);
    return LORA_OK;
}

static int attach(struct emu_board *board, const struct lora_arena_record *arena, int fd,
                  struct lora_failure *failure) {
    uint64_t pad = arena->offset % PAGE;
    if (arena->base % PAGE != pad || arena->base > INT64_MAX)
        return emu_fail(failure, LORA_ERR_ARGUMENT, board,
                        "board %u bank %u: arena at offset %#llx and address %#llx differ modulo "
                        "%llu",
                        board->index, arena->bank, (unsigned long long)arena->offset,
                        (unsigned long long)arena->base, PAGE);
    int status = emu_memory_reserve(board, arena->bank, arena->offset, arena->bytes, failure);
    if (status) return status;
    void *at = board->memory.base[arena->bank] + arena->offset - pad;
    if (mmap(at, arena->bytes + pad, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             (off_t)(arena->base - pad)) != MAP_FAILED)
        return LORA_OK;
    return emu_fail(failure, LORA_ERR_MEMORY, board, "board %u bank %u: its file cannot be mapped",
                    board->index, arena->bank);
}

int emu_memory_attach(struct emu_board *board, const struct lora_arena_record *arenas,
                      uint32_t count, int fd, struct lora_failure *failure) {
    int status = LORA_OK;
    for (uint32_t bank = 0; bank < board->info.bank_count; bank++) unmap(&board->memory, bank);
    for (uint32_t i = 0; i < count && status == LORA_OK; i++)
        if (arenas[i].valid) status = attach(board, &arenas[i], fd, failure);
    return status;
}

uint8_t *emu_memory_at(const struct emu_memory *memory, uint32_t bank, uint64_t offset,
                       uint64_t bytes) {
    if (bank >= EMU_BANKS) return NULL;
    const struct emu_bank *entry = &memory->banks[bank];
    for (uint32_t i = 0; i < entry->arena_count; i++) {
        const struct emu_arena *arena = &entry->arenas[i];
        if (offset < arena->offset || offset - arena->offset > arena->bytes) continue;
        if (bytes <= arena->bytes - (offset - arena->offset)) return memory->base[bank] + offset;
    }
    return NULL;
}

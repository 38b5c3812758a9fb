/* Arenas: the ranges of banks that the host has reserved, as lora_ctrl's registers say. */
#include "fw.h"

static uint64_t register_pair(uint32_t offset) {
    return (uint64_t)hal_register(offset + 4) << 32 | hal_register(offset);
}

void fw_arenas_load(struct fw *fw) {
    uint32_t count = hal_register(LORA_REG_ARENA_COUNT);
    if (count > LORA_MAX_ARENAS) count = LORA_MAX_ARENAS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t record = LORA_REG_ARENAS + i * (uint32_t)sizeof(struct lora_arena_record);
        struct fw_arena *arena = &fw->arenas[i];
        arena->offset = register_pair(record + 8);
        arena->bytes = register_pair(record + 16);
        arena->bank = hal_register(record + 24);
        arena->reserved = 0;
        if (hal_register(record + 28) == 0) arena->bytes = 0;
    }
    fw->arena_count = count;
}

uint32_t fw_arenas_seal(const struct fw *fw, uint32_t count) {
    return fw_seal(fw->arenas, count * (uint32_t)(sizeof(struct fw_arena) / 4));
}

int fw_in_arena(const struct fw *fw, uint32_t bank, uint64_t offset, uint64_t bytes) {
    for (uint32_t i = 0; i < fw->arena_count; i++) {
        const struct fw_arena *arena = &fw->arenas[i];
        if (arena->bank == bank && offset >= arena->offset && bytes <= arena->bytes &&
            offset - arena->offset <= arena->bytes - bytes)
            return 1;
    }
    return 0;
}

int fw_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

static uint32_t clamp(uint64_t value) { return value > FW_NONE ? FW_NONE : (uint32_t)value; }

/* found: bytes asked for; expected: bytes that the arena holds from this offset on. */
uint32_t fw_check_range(struct fw *fw, uint32_t bank, uint64_t offset, uint64_t bytes) {
    uint64_t available = 0;
    if (bytes == 0 || fw_in_arena(fw, bank, offset, bytes)) return FW_MORE;
    for (uint32_t i = 0; i < fw->arena_count; i++) {
        const struct fw_arena *arena = &fw->arenas[i];
        if (arena->bank == bank && offset >= arena->offset && offset - arena->offset < arena->bytes)
            available = arena->bytes - (offset - arena->offset);
    }
    fw->error.bank = bank;
    fw->error.offset = offset;
    return fw_fail(fw, LORA_ERR_ADDRESS, clamp(bytes), clamp(available));
}

/* Arenas: the ranges of banks that the host has reserved, as lora_ctrl's registers say. */
#include "fw.h"

static uint64_t register_pair(uint32_t offset) {
    return (uint64_t)hal_register(offset + 4) << 32 | hal_register(offset);
}

/* A board that counts the host's writes to the records says when there is nothing new. */
static uint32_t are_loaded(struct fw *fw) {
    uint32_t before = fw->arena_changes, known = fw->arenas_known;
    if (!(fw->features & HAL_FEATURE_RUN)) return 0;
    fw->arena_changes = hal_run_register(HAL_RUN_ARENA_CHANGES);
    fw->arenas_known = 1;
    return known && fw->arena_changes == before;
}

void fw_arenas_load(struct fw *fw) {
    uint32_t count;
    if (are_loaded(fw)) return;
    count = hal_register(LORA_REG_ARENA_COUNT);
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
    fw->sealed_count = FW_NONE;
    fw->arena_hit = 0;
}

uint32_t fw_arenas_seal(struct fw *fw, uint32_t count) {
    if (fw->sealed_count != count)
        fw->arenas_seal = fw_seal(fw->arenas, count * (uint32_t)(sizeof(struct fw_arena) / 4));
    fw->sealed_count = count;
    return fw->arenas_seal;
}

static int holds(const struct fw_arena *arena, uint32_t bank, uint64_t offset, uint64_t bytes) {
    return arena->bank == bank && offset >= arena->offset && bytes <= arena->bytes &&
           offset - arena->offset <= arena->bytes - bytes;
}

int fw_in_arena(struct fw *fw, uint32_t bank, uint64_t offset, uint64_t bytes) {
    if (fw->arena_hit < fw->arena_count && holds(&fw->arenas[fw->arena_hit], bank, offset, bytes))
        return 1;
    for (uint32_t i = 0; i < fw->arena_count; i++)
        if (holds(&fw->arenas[i], bank, offset, bytes)) {
            fw->arena_hit = i; /* most questions are about the same one */
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

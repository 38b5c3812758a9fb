/* Commands are read from the control bank in chunks, through one small cache that all units share.
 * A chunk is held against the seal of its registration each time it is read, so a list that was
 * overwritten since cannot run with addresses nobody checked. */
#include "fw.h"

void fw_fetch_reset(struct fw *fw) {
    for (uint32_t i = 0; i < FW_CACHE_CHUNKS; i++) fw->cached[i] = FW_NONE;
}

uint32_t fw_chunk_commands(const struct fw_list *list, uint32_t chunk) {
    uint32_t left = list->header.command_count - chunk * FW_CHUNK_COMMANDS;
    return left < FW_CHUNK_COMMANDS ? left : FW_CHUNK_COMMANDS;
}

static void note_units(struct fw *fw, uint32_t entry, uint32_t count) {
    uint16_t *of_unit = fw->of_unit[entry];
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) of_unit[unit] = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t unit = fw->cache[entry][i].unit;
        if (unit < LORA_UNITS) of_unit[unit] = (uint16_t)(of_unit[unit] | 1u << i);
    }
}

static uint32_t load(struct fw *fw, uint32_t chunk) {
    const struct fw_list *list = fw->list;
    uint32_t entry = chunk % FW_CACHE_CHUNKS;
    uint32_t count = fw_chunk_commands(list, chunk);
    uint32_t offset = chunk * FW_CHUNK_COMMANDS * FW_COMMAND_BYTES;
    uint32_t seal;
    fw->cached[entry] = FW_NONE;
    hal_read(fw->control_bank, (uint64_t)list->offset + sizeof list->header + offset,
             fw->cache[entry], count * FW_COMMAND_BYTES);
    seal = fw_seal(fw->cache[entry], count * FW_COMMAND_BYTES / 4);
    if (seal != list->seal[chunk]) {
        fw->error.index = chunk * FW_CHUNK_COMMANDS;
        return fw_fail(fw, LORA_ERR_CRC, seal, list->seal[chunk]);
    }
    note_units(fw, entry, count);
    fw->cached[entry] = chunk;
    return FW_MORE;
}

const struct lora_command *fw_fetch(struct fw *fw, uint32_t index) {
    uint32_t chunk = index / FW_CHUNK_COMMANDS;
    uint32_t entry = chunk % FW_CACHE_CHUNKS;
    if (fw->cached[entry] != chunk && load(fw, chunk) == FW_FAILED) return 0;
    return &fw->cache[entry][index % FW_CHUNK_COMMANDS];
}

uint32_t fw_seek(struct fw *fw, uint32_t unit, uint32_t *index,
                 const struct lora_command **command) {
    uint32_t chunk = *index / FW_CHUNK_COMMANDS;
    uint32_t entry = chunk % FW_CACHE_CHUNKS;
    uint32_t found, at;
    if (fw->cached[entry] != chunk && load(fw, chunk) == FW_FAILED) return FW_FAILED;
    at = *index % FW_CHUNK_COMMANDS;
    found = (uint32_t)(fw->of_unit[entry][unit] | fw->of_unit[entry][LORA_UNIT_CONTROL]) >> at;
    if (found == 0) {
        *index = (chunk + 1) * FW_CHUNK_COMMANDS;
        return FW_OVER;
    }
    for (; !(found & 1); found >>= 1) at++;
    *index = chunk * FW_CHUNK_COMMANDS + at;
    *command = &fw->cache[entry][at];
    return FW_MORE;
}

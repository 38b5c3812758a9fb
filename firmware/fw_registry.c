/* REGISTER: a list is read three times in slices. First its CRC, with a seal kept of each chunk;
 * then every command's fields; then a dry run of the counters. */
#include "fw.h"

static void begin_entry(struct fw *fw, struct fw_list *entry) {
    entry->valid = 0;
    if (entry == &fw->lists[fw->undo_list])
        fw->undo_count = 0; /* its page table may lie elsewhere from now on */
    entry->offset = fw->block_offset;
    entry->kv_commit = entry->ballot = FW_NONE;
    entry->kv_committed = entry->kv_stored = entry->states = 0;
    entry->received = entry->passed = FW_NONE;
    fw->list = entry;
    fw->scan = 0;
    fw->collective = FW_NONE;
}

uint32_t fw_register_begin(struct fw *fw) {
    uint32_t id = hal_register(LORA_REG_LIST_ID);
    struct lora_list unsealed;
    struct fw_list *entry;
    if (id >= LORA_MAX_LISTS) return fw_fail(fw, LORA_ERR_LIST, id, LORA_MAX_LISTS);
    if (fw_check_range(fw, fw->control_bank, fw->block_offset, sizeof entry->header) == FW_FAILED)
        return FW_FAILED;
    entry = &fw->lists[id];
    begin_entry(fw, entry);
    hal_read(fw->control_bank, entry->offset, &entry->header, sizeof entry->header);
    if (fw_check_header(fw, entry) == FW_FAILED) return FW_FAILED;
    fw_copy(&unsealed, &entry->header, sizeof unsealed);
    unsealed.crc = 0;
    fw->crc = fw_crc32(0, &unsealed, sizeof unsealed);
    fw->phase = FW_PHASE_SEAL;
    return FW_MORE;
}

uint32_t fw_register_seal(struct fw *fw) {
    struct fw_list *entry = fw->list;
    uint32_t bytes = fw_chunk_commands(entry, fw->scan) * FW_COMMAND_BYTES;
    uint32_t offset = fw->scan * FW_CHUNK_COMMANDS * FW_COMMAND_BYTES;
    hal_read(fw->control_bank, (uint64_t)entry->offset + sizeof entry->header + offset,
             fw->cache[0], bytes);
    fw->crc = fw_crc32(fw->crc, fw->cache[0], bytes);
    entry->seal[fw->scan] = fw_seal(fw->cache[0], bytes / 4);
    fw_sequence_seal(fw, fw->scan);
    fw->scan++;
    if (fw->scan * FW_CHUNK_COMMANDS < entry->header.command_count) return FW_MORE;
    if (fw->crc != entry->header.crc) return fw_fail(fw, LORA_ERR_CRC, fw->crc, entry->header.crc);
    fw->scan = 0;
    fw_fetch_reset(fw);
    fw->phase = FW_PHASE_CHECK;
    return FW_MORE;
}

uint32_t fw_register_check(struct fw *fw) {
    struct fw_list *entry = fw->list;
    uint32_t count = entry->header.command_count;
    for (uint32_t i = 0; i < FW_CHUNK_COMMANDS && fw->scan < count; i++, fw->scan++) {
        const struct lora_command *command = fw_fetch(fw, fw->scan);
        if (command == 0 || fw_check_command(fw, fw->scan, command) == FW_FAILED) return FW_FAILED;
    }
    if (fw->scan < count) return FW_MORE;
    fw_blame_none(fw);
    fw->dry_run_groups = fw->dry_run_selected = 0;
    fw_execution_reset(fw, 0, 0, 0);
    fw->phase = FW_PHASE_DRY_RUN;
    return FW_MORE;
}

void fw_register_finish(struct fw *fw) {
    struct fw_list *entry = fw->list;
    entry->arena_count = fw->arena_count;
    entry->arena_seal = fw_arenas_seal(fw, fw->arena_count);
    entry->valid = 1;
}

/* Commands are read from the control bank in chunks, through one small cache that all units share.
 * A chunk is held against the seal of its registration each time it is read, so a list that was
 * overwritten since cannot run with addresses nobody checked. */
#include "fw.h"

void fw_fetch_reset(struct fw *fw)
{
    for (uint32_t i = 0; i < FW_CACHE_CHUNKS; i++)
        fw->cached[i] = FW_NONE;
}

uint32_t fw_chunk_commands(const struct fw_list *list, uint32_t chunk)
{
    uint32_t left = list->header.command_count - chunk * FW_CHUNK_COMMANDS;
    return left < FW_CHUNK_COMMANDS ? left : FW_CHUNK_COMMANDS;
}

const struct lora_command *fw_fetch(struct fw *fw, uint32_t index)
{
    const struct fw_list *list = fw->list;
    uint32_t chunk = index / FW_CHUNK_COMMANDS;
    uint32_t place = chunk % FW_CACHE_CHUNKS;
    struct lora_command *commands = fw->cache[place];
    if (fw->cached[place] != chunk) {
        uint32_t bytes = fw_chunk_commands(list, chunk) * FW_COMMAND_BYTES;
        uint32_t offset = chunk * FW_CHUNK_COMMANDS * FW_COMMAND_BYTES;
        uint32_t seal;
        fw->cached[place] = FW_NONE;
        hal_read(fw->control_bank, (uint64_t)list->offset + sizeof list->header + offset, commands,
                 bytes);
        seal = fw_seal(0, commands, bytes / 4);
        if (seal != list->seal[chunk]) {
            fw->error.index = chunk * FW_CHUNK_COMMANDS;
            fw_fail(fw, LORA_ERR_CRC, seal, list->seal[chunk]);
            return 0;
        }
        fw->cached[place] = chunk;
    }
    return &commands[index % FW_CHUNK_COMMANDS];
}

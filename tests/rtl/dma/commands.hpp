// Random commands of the DMA unit for a scene.
#ifndef DMA_COMMANDS_HPP
#define DMA_COMMANDS_HPP

#include "scene.hpp"

class CommandMaker {
  public:
    CommandMaker(Random &random, const Scene &scene) : random_(random), scene_(scene) {}

    Job make() {
        Job job;
        job.list = scene_.list;
        job.state = scene_.state;
        switch (random_.below(9)) {
        case 0:
        case 1:
        case 2: put(job, store()); break;
        case 3:
        case 4: put(job, commit()); break;
        case 5:
        case 6: put(job, move()); break;
        default: put(job, sum());
        }
        if (random_.once_in(100)) job.command.opcode = static_cast<uint8_t>(random_.below(16));
        job.command.unit = LORA_UNIT_DMA;
        return job;
    }

  private:
    template <class Record> static void put(Job &job, const Record &record) {
        static_assert(sizeof record == sizeof job.command, "a command");
        std::memcpy(&job.command, &record, sizeof record);
    }

    uint32_t width() const { return scene_.list.kv_type == LORA_KV_FP16 ? 2 : 1; }
    bool odd() { return random_.once_in(12); }
    uint32_t any() {
        return random_.once_in(2) ? scene_.onchip_bytes - random_.below(300)
                                  : static_cast<uint32_t>(random_.next() >> random_.below(32));
    }

    lora_kv_store store() {
        const lora_list &list = scene_.list;
        lora_kv_store c{};
        c.opcode = LORA_CMD_KV_STORE;
        c.head_dim = list.head_dim;
        c.kv_layer = static_cast<uint16_t>(random_.below(list.kv_layers));
        c.kv_heads = static_cast<uint16_t>(random_.once_in(4) ? random_.below(list.kv_heads + 1)
                                                              : list.kv_heads);
        uint32_t row = c.kv_heads * c.head_dim * width(),
                 rows = std::min(scene_.state.row_count, 64u);
        uint32_t step = random_.once_in(3) ? 1 : width();
        c.stride = row + random_.below(40) * step;
        uint32_t room = scene_.onchip_bytes;
        if (rows > 1) c.stride = std::min(c.stride, (room - row) / (rows - 1) / 2 * 2);
        uint32_t last = rows ? (rows - 1) * c.stride + row : 0;
        if (last < room) {
            c.k_offset = random_.below((room - last) / step) * step;
            c.v_offset = random_.below((room - last) / step) * step;
        }
        c.scale_stride = 2u * c.kv_heads + random_.below(20) * 2;
        c.k_scales = random_.below(4000) * 2;
        c.v_scales = random_.below(4000) * 2;
        if (!odd()) return c;
        uint32_t *fields[] = {&c.k_offset, &c.v_offset, &c.stride,
                              &c.k_scales, &c.v_scales, &c.scale_stride};
        switch (random_.below(5)) {
        case 0: c.head_dim = static_cast<uint16_t>(any()); break;
        case 1: c.kv_layer = static_cast<uint16_t>(list.kv_layers + random_.below(2)); break;
        case 2: c.kv_heads = static_cast<uint16_t>(any()); break;
        default: *fields[random_.below(6)] = any();
        }
        return c;
    }

    lora_command commit() {
        lora_command c{};
        c.opcode = LORA_CMD_KV_COMMIT;
        for (uint32_t &word : c.body) word = static_cast<uint32_t>(random_.next());
        if (odd()) return c;
        const uint32_t first = random_.below(scene_.list.kv_layers);
        const uint32_t layers = random_.below(scene_.list.kv_layers - first + 1); // 0: the rest
        c.body[0] = random_.once_in(2) ? 0 : first | layers << 16;
        return c;
    }

    // A bank of rows, and where they begin so that they fit.
    uint8_t place(uint32_t bytes, uint32_t &offset) {
        uint32_t bank = random_.once_in(2)   ? uint32_t{LORA_BANK_ONCHIP}
                        : random_.once_in(2) ? CONTROL
                                             : random_.below(BANKS);
        uint32_t size = bank == LORA_BANK_ONCHIP ? scene_.onchip_bytes : BANK_BYTES;
        uint32_t low = bank == CONTROL ? RESULTS : 0;
        if (bank == CONTROL || bank == scene_.list.table_bank) size = 128 << 10;
        offset = low + (size > low + bytes ? random_.below(size - low - bytes + 1) : 0);
        if (random_.once_in(2)) offset &= ~63u;
        return static_cast<uint8_t>(bank);
    }

    lora_move_rows move() {
        static const uint32_t FLAGS[] = {0,
                                         LORA_FLAG_SELECTED,
                                         LORA_FLAG_PACK,
                                         LORA_FLAG_VOTES,
                                         LORA_FLAG_PACK | LORA_FLAG_SELECTED,
                                         LORA_FLAG_PACK | LORA_FLAG_VOTES};
        lora_move_rows c{};
        c.opcode = LORA_CMD_MOVE_ROWS;
        c.flags = static_cast<uint16_t>(FLAGS[random_.below(6)]);
        uint32_t rows = std::max(1u, std::min(scene_.state.row_count, 64u));
        c.bytes = random_.below(random_.once_in(3) ? 800 : 100);
        bool over = random_.once_in(4); // rows over others, longer than what is read ahead
        if (over || random_.once_in(20)) c.bytes = random_.below(over ? 9000 : 20000);
        c.bytes = std::min(c.bytes, 20000 / rows);
        c.x_stride = random_.once_in(3) ? random_.below(2 * c.bytes + 1)
                                        : c.bytes + (-c.bytes & 63);
        c.y_stride = random_.once_in(3) ? random_.below(2 * c.bytes + 1)
                                        : c.bytes + (-c.bytes & 63);
        c.x_bank = place((rows - 1) * c.x_stride + c.bytes, c.x_offset);
        c.y_bank = place((rows - 1) * c.y_stride + c.bytes, c.y_offset);
        if (over) c.y_bank = c.x_bank;
        if (over || (c.x_bank == c.y_bank && random_.once_in(2))) {
            int64_t near = int64_t{c.x_offset} + random_.below(200) - 100;
            uint32_t low = c.y_bank == CONTROL ? RESULTS : 0;
            c.y_offset = static_cast<uint32_t>(std::max<int64_t>(near, low));
        }
        if (!odd()) return c;
        uint32_t *fields[] = {&c.x_offset, &c.x_stride, &c.y_offset, &c.y_stride, &c.bytes};
        switch (random_.below(6)) {
        case 0: c.x_bank = static_cast<uint8_t>(any()); break;
        case 1: c.y_bank = static_cast<uint8_t>(64 + random_.below(192)); break;
        default: *fields[random_.below(5)] = any();
        }
        if (c.y_bank == CONTROL || c.y_bank == scene_.list.table_bank) c.y_bank = LORA_BANK_ONCHIP;
        return c;
    }

    lora_checksum sum() {
        lora_checksum c{};
        c.opcode = LORA_CMD_CHECKSUM;
        c.crc = random_.once_in(2) ? 0 : static_cast<uint32_t>(random_.next());
        c.bank = random_.once_in(6) ? uint32_t{LORA_BANK_ONCHIP} : random_.below(BANKS);
        uint32_t size = c.bank == LORA_BANK_ONCHIP ? scene_.onchip_bytes : BANK_BYTES;
        c.bytes = random_.below(random_.once_in(3) ? 20000 : 300);
        c.offset_lo = random_.below(size - c.bytes + 1);
        if (random_.once_in(4)) c.offset_lo = size - c.bytes;
        if (!odd()) return c;
        uint32_t *fields[] = {&c.bank, &c.offset_lo, &c.offset_hi, &c.bytes};
        *fields[random_.below(4)] = any() & (random_.once_in(2) ? ~0u : 0x1ff);
        return c;
    }

    Random &random_;
    const Scene &scene_;
};

#endif

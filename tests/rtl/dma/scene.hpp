// Random lists, steps, memory and commands of a DMA unit: most of them right, some with a field of
// any value.
#ifndef DMA_SCENE_HPP
#define DMA_SCENE_HPP

#include "card.hpp"

#include <algorithm>
#include <numeric>

using Tally = std::map<std::string, uint64_t>;

constexpr uint32_t BANKS = 6, CONTROL = 4, TABLE = 5; // K and V lie in the first four
constexpr uint32_t BANK_BYTES = 256 << 10, OPS = 8 << 10, PATH = 24 << 10, RESULTS = 48 << 10;

struct Scene {
    lora_list list{};
    lora_step_state state{};
    Banks banks;
    uint32_t onchip_bytes = 0;
};

class SceneMaker {
  public:
    explicit SceneMaker(Random &random) : random_(random) {}

    Scene make() {
        Scene s;
        make_list(s.list);
        make_banks(s);
        make_tables(s);
        make_step(s);
        return s;
    }

    // Another step of the same list, in its memory.
    void make_step(Scene &s) {
        lora_step_state &state = s.state;
        state = {};
        state.row_count = random_.once_in(8) ? 0 : 1 + random_.below(random_.once_in(4) ? 64 : 6);
        make_slots(s);
        state.selected_count = random_.below(state.row_count + 1);
        uint32_t at = 0;
        for (uint32_t i = 0; i < state.selected_count; i++) {
            at += random_.below(state.row_count - state.selected_count + i + 1 - at);
            state.selected[i] = static_cast<uint16_t>(at++);
        }
        make_ops(s);
        if (!random_.once_in(6)) return;
        switch (random_.below(4)) {
        case 0: state.row_count = 60 + random_.below(10); break;
        case 1: state.row_count = any(); break;
        case 2: state.selected_count = any(); break;
        default: state.selected[random_.below(8)] = static_cast<uint16_t>(any());
        }
    }

  private:
    uint32_t any() {
        static const uint32_t EDGES[] = {0,     1,     31,         63,         64,
                                         65,    127,   128,        255,        4095,
                                         65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff};
        return random_.once_in(2) ? EDGES[random_.below(15)]
                                  : static_cast<uint32_t>(random_.next());
    }

    void make_list(lora_list &list) {
        static const uint16_t SIZES[] = {2, 4, 6, 16, 32, 34, 64, 96, 128};
        list.kv_type = static_cast<uint16_t>(random_.below(3));
        list.head_dim = SIZES[random_.below(9)];
        if (list.kv_type == LORA_KV_FP16 && random_.once_in(3))
            list.head_dim = static_cast<uint16_t>(1 + random_.below(40));
        list.kv_layers = static_cast<uint16_t>(1 + random_.below(3));
        list.kv_heads = static_cast<uint16_t>(1 + random_.below(3));
        if (list.kv_layers * list.kv_heads * list.head_dim > 200)
            list.kv_layers = list.kv_heads = 1;
        list.max_scratch = 1 + random_.below(random_.once_in(2) ? 32 : 100);
        list.page_count = (list.max_scratch + 31) / 32 + 1 + random_.below(5);
        list.max_sequences = 1 + random_.below(4);
        list.max_tiles = 1 + random_.below(random_.once_in(4) ? 70 : 6);
        list.kv_bank_first = static_cast<uint8_t>(random_.below(3));
        list.kv_bank_count = static_cast<uint8_t>(1 + random_.below(4 - list.kv_bank_first));
        list.kv_line = random_.below(50);
        uint32_t lines = list.head_dim / (list.kv_type == LORA_KV_FP16 ? 1 : 2) +
                         (list.kv_type == LORA_KV_INT8_HEADS);
        uint32_t stride = (list.kv_layers * list.kv_heads * 2) | 1;
        uint32_t blocks = list.page_count * stride;
        if (random_.once_in(3)) {
            list.kv_spill_page = (list.max_scratch + 31) / 32 + random_.below(2);
            list.kv_spill_bank_first = static_cast<uint8_t>(random_.below(4));
            list.kv_spill_bank_count = static_cast<uint8_t>(
                1 + random_.below(4 - list.kv_spill_bank_first));
            blocks = std::min(list.kv_spill_page, list.page_count) * stride;
            uint32_t behind = list.kv_line +
                              (blocks + list.kv_bank_count - 1) / list.kv_bank_count * lines;
            list.kv_spill_line = behind + random_.below(20);
        }
        list.control_bank = CONTROL;
        list.table_bank = random_.once_in(3) ? CONTROL : TABLE;
        list.table_line = (128 << 10) / LINE + random_.below(100);
        lines_ = lines;
        if (random_.once_in(16)) change_list(list);
    }

    void change_list(lora_list &list) {
        uint32_t what = random_.below(7);
        if (what != 2)
            list.kv_spill_bank_count = 0; // blocks of two pools must not lie over each other
        switch (what) {
        case 0: list.kv_bank_count = static_cast<uint8_t>(any()); break;
        case 1: list.kv_bank_first = static_cast<uint8_t>(61 + random_.below(5)); break;
        case 2: list.kv_spill_bank_first = static_cast<uint8_t>(any()); break;
        case 3: list.kv_type = static_cast<uint16_t>(any()); break;
        case 4:
            list.head_dim = static_cast<uint16_t>(random_.once_in(2) ? 0 : list.head_dim | 1);
            break;
        case 5: list.page_count = 1 + random_.below(3); break;
        default: list.kv_line = any();
        }
        bool onchip = list.kv_bank_first + list.kv_bank_count > 63 && list.kv_bank_first <= 63;
        if (onchip || list.kv_spill_bank_first + list.kv_spill_bank_count > 63) // not of lists
            list.kv_bank_first = 64;
    }

    void make_banks(Scene &s) {
        for (uint32_t bank = 0; bank < BANKS; bank++) {
            s.banks.bytes[bank].resize(BANK_BYTES);
            uint64_t cut = random_.below(BANK_BYTES / LINE) * LINE;
            uint32_t how = random_.below(12);
            if (how == 0 && cut) {
                s.banks.arenas.push_back({bank, cut, BANK_BYTES - cut});
                s.banks.arenas.push_back({bank, 0, cut});
            } else if (how == 1 && cut) {
                s.banks.arenas.push_back({bank, 0, cut});
            } else if (how == 2) {
                s.banks.arenas.push_back({bank, cut, BANK_BYTES - cut});
            } else if (how < 6 && bank < CONTROL) { // between two blocks
                cut = std::min<uint64_t>(cut / LINE / lines_ * lines_ + s.list.kv_line,
                                         BANK_BYTES / LINE - 1) *
                      LINE;
                if (cut) s.banks.arenas.push_back({bank, 0, cut});
                s.banks.arenas.push_back({bank, cut, BANK_BYTES - cut});
            } else {
                s.banks.arenas.push_back({bank, 0, BANK_BYTES});
            }
        }
        s.onchip_bytes = (24 << 10) + random_.below(40 << 10);
        s.banks.bytes[LORA_BANK_ONCHIP].resize((s.onchip_bytes + LINE - 1) / LINE * LINE);
        s.banks.arenas.push_back({LORA_BANK_ONCHIP, 0, s.onchip_bytes});
        for (auto &[bank, bytes] : s.banks.bytes)
            for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
                uint64_t word = random_.next();
                std::memcpy(&bytes[i], &word, 8);
            }
    }

    void put(Scene &s, uint32_t bank, uint64_t at, const void *data, size_t bytes) {
        if (at + bytes <= s.banks.bytes[bank].size())
            std::memcpy(&s.banks.bytes[bank][at], data, bytes);
    }

    // A page of each tile, another one each if there are as many.
    void make_tables(Scene &s) {
        const lora_list &list = s.list;
        uint32_t scratch = (list.max_scratch + 31) / 32;
        uint32_t pages = list.page_count > scratch ? list.page_count - scratch : 1;
        uint64_t row = (list.max_tiles * 2 + LINE - 1) / LINE * LINE;
        for (uint32_t q = 0; q < list.max_sequences; q++)
            for (uint32_t tile = 0; tile < list.max_tiles; tile++) {
                auto page = static_cast<uint16_t>(scratch + (q * 3 + tile) % pages);
                if (random_.once_in(40))
                    page = static_cast<uint16_t>(random_.below(list.page_count + 2));
                put(s, list.table_bank, list.table_line * uint64_t{LINE} + q * row + tile * 2,
                    &page, 2);
            }
    }

    void make_slots(Scene &s) {
        uint32_t scratch = s.list.max_scratch, first = random_.below(scratch);
        bool runs = random_.once_in(2);
        for (uint32_t i = 0; i < LORA_MAX_ROWS; i++)
            s.state.rows[i].slot = static_cast<int32_t>(runs ? (first + i) % scratch
                                                             : random_.below(scratch));
        if (random_.once_in(10))
            s.state.rows[random_.below(6)].slot = random_.once_in(2) ? static_cast<int32_t>(scratch)
                                                                     : static_cast<int32_t>(any());
    }

    void make_ops(Scene &s) {
        const lora_list &list = s.list;
        lora_step_state &state = s.state;
        state.kv_ops_offset = OPS + random_.below(20) * (random_.once_in(4) ? 1 : 16);
        state.path_offset = PATH + random_.below(60) * (random_.once_in(4) ? 1 : 2);
        state.kv_op_count = random_.once_in(8) ? 0 : 1 + random_.below(5);
        uint32_t path = 0;
        for (uint32_t i = 0; i < state.kv_op_count; i++) {
            lora_kv_op op{};
            op.sequence = static_cast<uint16_t>(random_.below(list.max_sequences));
            op.kind = static_cast<uint16_t>(1 + random_.below(4));
            if (op.kind < LORA_KV_COPY && random_.once_in(2)) op.kind = LORA_KV_COMMIT;
            op.a = random_.below(op.kind == LORA_KV_COMMIT ? list.max_tiles * 32 : list.page_count);
            op.b = op.kind == LORA_KV_COMMIT ? path : random_.below(list.page_count);
            op.c = random_.below(op.kind == LORA_KV_COMMIT && random_.once_in(3) ? 70
                                 : op.kind == LORA_KV_COPY                       ? 33
                                                                                 : 6);
            if (op.kind == LORA_KV_COMMIT) {
                op.c = std::min(op.c, list.max_tiles * 32 - op.a);
                make_path(s, path, op.c);
                path += op.c;
            }
            if (random_.once_in(12)) change_op(op);
            put(s, CONTROL, state.kv_ops_offset + i * sizeof op, &op, sizeof op);
        }
        state.path_count = path;
        if (!random_.once_in(16)) return;
        switch (random_.below(4)) {
        case 0: state.kv_op_count = any(); break;
        case 1: state.kv_ops_offset = BANK_BYTES - random_.below(100); break;
        case 2: state.path_offset = any(); break;
        default: state.path_count = any();
        }
    }

    void make_path(Scene &s, uint32_t at, uint32_t count) {
        uint32_t scratch = s.list.max_scratch;
        auto slot = static_cast<uint16_t>(random_.below(scratch));
        uint32_t breaks = 1 + random_.below(20);
        for (uint32_t i = 0; i < count; i++) {
            slot = static_cast<uint16_t>((slot + 1u) % scratch);
            if (random_.once_in(breaks)) slot = static_cast<uint16_t>(random_.below(scratch));
            uint16_t found = random_.once_in(200) ? static_cast<uint16_t>(any()) : slot;
            put(s, CONTROL, s.state.path_offset + (uint64_t{at} + i) * 2, &found, 2);
        }
    }

    void change_op(lora_kv_op &op) {
        uint32_t *fields[] = {&op.a, &op.b, &op.c};
        if (random_.once_in(5)) op.sequence = static_cast<uint16_t>(any());
        else if (random_.once_in(5)) op.kind = static_cast<uint16_t>(any());
        else if (random_.once_in(4)) *fields[random_.below(3)] += 1 + random_.below(40);
        else *fields[random_.below(3)] = any();
    }

    Random &random_;
    uint32_t lines_ = 1; // of a block
};

#endif

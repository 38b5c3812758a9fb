// Random gathers of one to four boards: commands, lists, rows, and what each board's buffer begins
// with.
#ifndef ROUTER_SCENE_HPP
#define ROUTER_SCENE_HPP

#include "card.hpp"

#include <algorithm>

struct Place { // rows that a gather leaves in a board's buffer
    uint32_t offset, stride, width, rows;
    std::vector<uint8_t> bytes; // rows, one after another
};

struct Scene {
    uint32_t boards, onchip_bytes;
    bool ring;
    uint32_t stage_boards;
    std::vector<std::vector<Gather>> gathers; // by board
    std::vector<std::vector<Place>> places;   // the same
    std::vector<std::vector<uint8_t>> onchip; // before
    uint32_t epoch, step;

    // The far end of a port; false: there is no cable.
    bool far_end(uint32_t board, uint32_t port, uint32_t &to, uint32_t &to_port) const {
        const lora_list &list = gathers[board][0].list;
        bool next = port == list.port_next;
        if (boards < 2 || (!ring && board + (next ? 1 : 0) == (next ? boards : 0))) return false;
        to = (board + (next ? 1 : boards - 1)) % boards;
        const lora_list &other = gathers[to][0].list;
        to_port = next ? other.port_previous : other.port_next;
        return true;
    }
};

inline uint32_t share_at(uint32_t columns, uint32_t unit, uint32_t at, uint32_t parts) {
    uint64_t units = (static_cast<uint64_t>(columns) + unit - 1) / unit;
    return static_cast<uint32_t>(std::min<uint64_t>(columns, at * units / parts * unit));
}

class SceneMaker {
  public:
    SceneMaker(Random &random, bool single) : random_(random), single_(single) {}

    Scene make() {
        Scene s{};
        s.boards = single_ ? 2 + random_.below(3) : 1 + random_.below(4);
        s.ring = s.boards > 1 && random_.once_in(2);
        if (s.boards % 2 == 0 && random_.once_in(3)) s.stage_boards = s.boards / 2;
        s.epoch = random_.once_in(8) ? 0xfffffffe : static_cast<uint32_t>(random_.next());
        s.step = static_cast<uint32_t>(random_.next());
        s.gathers.resize(s.boards);
        s.places.resize(s.boards);
        ends_.assign(s.boards, random_.below(200));
        uint32_t count = single_ ? 1 : 1 + random_.below(3);
        uint32_t collective = random_.below(60000);
        for (uint32_t b = 0; b < s.boards; b++) swapped_.push_back(random_.once_in(2));
        for (uint32_t i = 0; i < count; i++) add(s, collective += 1 + random_.below(3));
        for (uint32_t end : ends_) s.onchip_bytes = std::max(s.onchip_bytes, end);
        s.onchip_bytes += random_.below(100);
        fill(s);
        return s;
    }

  private:
    void add(Scene &s, uint32_t collective) {
        lora_gather command{};
        command.opcode = LORA_CMD_GATHER;
        command.unit = LORA_UNIT_ROUTER;
        command.collective = static_cast<uint16_t>(collective);
        command.element_bytes = static_cast<uint16_t>(1 << random_.below(4));
        static const uint16_t UNITS[] = {1, 3, 8, 32, 64};
        command.share_unit = UNITS[random_.below(5)];
        command.segment_unit = UNITS[random_.below(5)];
        command.columns = 1 + random_.below(random_.once_in(4) ? 2500 : 300);
        uint32_t rows = random_.once_in(6) ? 0 : 1 + random_.below(random_.once_in(3) ? 64 : 6);
        if (rows == 0) rows = random_.once_in(4) ? 0 : 16;
        bool large = single_ && random_.once_in(5); // more frames than buffers hold
        if (large) rows = 33 + random_.below(32);
        if (large) command.columns = 1 + random_.below(3000 / command.element_bytes);
        if (!large && command.columns * rows * command.element_bytes > 60000) rows = 1 + rows % 4;
        uint32_t kind = s.stage_boards ? random_.below(3) : 0;
        uint32_t each = kind == 0 ? s.boards : s.stage_boards;
        std::vector<uint8_t> bytes;
        for (uint32_t b = 0; b < s.boards; b++) {
            uint32_t width = command.columns * command.element_bytes;
            if (b == 0 || (kind == 1 && b == s.stage_boards)) {
                bytes.resize(static_cast<size_t>(width) * rows);
                for (auto &byte : bytes) byte = static_cast<uint8_t>(random_.next());
            }
            command.span = static_cast<uint16_t>(kind == 0   ? LORA_SPAN_ALL
                                                 : kind == 1 ? LORA_SPAN_STAGE
                                                 : b < each  ? LORA_SPAN_TO_NEXT
                                                             : LORA_SPAN_FROM_PREVIOUS);
            command.stride = width + (random_.once_in(2) ? random_.below(70) : -width & 63);
            command.offset = ends_[b] + (random_.once_in(2) ? random_.below(70) : -ends_[b] & 63);
            ends_[b] = command.offset + command.stride * std::max(rows, 1u);
            give(s, b, command, rows, bytes);
        }
    }

    void give(Scene &s, uint32_t b, const lora_gather &command, uint32_t rows,
              const std::vector<uint8_t> &bytes) {
        Gather gather;
        gather.command = command;
        gather.rows = rows;
        gather.epoch = s.epoch;
        gather.step = s.step;
        gather.list.rank = static_cast<uint8_t>(b);
        gather.list.boards = static_cast<uint8_t>(s.boards);
        gather.list.ring = s.ring;
        gather.list.port_next = swapped_[b];
        gather.list.port_previous = !swapped_[b];
        gather.list.stage_boards = static_cast<uint8_t>(s.stage_boards);
        s.gathers[b].push_back(gather);
        s.places[b].push_back(
            {command.offset, command.stride, command.columns * command.element_bytes, rows, bytes});
    }

    // Any bytes, but each board's own columns.
    void fill(Scene &s) {
        s.onchip.resize(s.boards);
        for (uint32_t b = 0; b < s.boards; b++) {
            s.onchip[b].resize(s.onchip_bytes);
            for (auto &byte : s.onchip[b]) byte = static_cast<uint8_t>(random_.next());
            for (size_t i = 0; i < s.gathers[b].size(); i++) own_columns(s, b, i);
        }
    }

    void own_columns(Scene &s, uint32_t b, size_t i) {
        const lora_gather &command = s.gathers[b][i].command;
        const Place &place = s.places[b][i];
        uint32_t owners = command.span == LORA_SPAN_ALL ? s.boards : s.stage_boards, rank = b;
        if (command.span == LORA_SPAN_STAGE) rank = b % owners;
        if (rank >= owners) return;
        uint32_t element = command.element_bytes;
        uint32_t from = share_at(command.columns, command.share_unit, rank, owners) * element;
        uint32_t to = share_at(command.columns, command.share_unit, rank + 1, owners) * element;
        for (uint32_t row = 0; row < place.rows; row++)
            std::copy_n(&place.bytes[static_cast<size_t>(row) * place.width + from], to - from,
                        &s.onchip[b][place.offset + row * place.stride + from]);
    }

    Random &random_;
    bool single_;
    std::vector<uint32_t> ends_;
    std::vector<uint8_t> swapped_;
};

#endif

// A simulated control that runs the committed image in the place of a board's firmware: registers,
// board memory, units and links are reached as the firmware's host build reaches them (hal.h).
// LORA_TEST_IMAGE names the image's file.
#ifndef LORA_TEST_HAL_CONTROL_HPP
#define LORA_TEST_HAL_CONTROL_HPP

#include "card.hpp"
#include <board_links.hpp>

extern "C" {
#include "hal.h"
}
#include "hal_card.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace hal {

constexpr uint32_t BOOT_CYCLES = 3000;
constexpr uint32_t REGISTERS = (LORA_REG_ARENAS + LORA_MAX_ARENAS * 32) / 4;

[[noreturn]] inline void fail(const char *what, uint32_t number) {
    fprintf(stderr, "simulated control: %s (%#x)\n", what, number);
    abort();
}

inline std::vector<uint8_t> read_code() {
    const char *path = getenv("LORA_TEST_IMAGE");
    std::ifstream file(path ? path : "", std::ios::binary);
    std::vector<uint8_t> image((std::istreambuf_iterator<char>(file)), {});
    lora_image_header header;
    if (image.size() <= sizeof header) fail("LORA_TEST_IMAGE names no firmware image", 0);
    memcpy(&header, image.data(), sizeof header);
    if (header.magic != LORA_IMAGE_MAGIC || header.entry != 0) fail("not an image", header.magic);
    return {image.begin() + header.size, image.end()};
}

// The board's units, asked again after `poll_every` cycles.
class BoardUnits : public Units {
  public:
    BoardUnits(uint32_t poll_every, bool traces) : poll_every_(poll_every), traces_(traces) {}
    Card *card = nullptr;

    void start(uint32_t unit, const uint32_t *command, uint32_t list, uint32_t state) override {
        memcpy(&commands_[unit], command, sizeof commands_[unit]);
        asked_[unit] = 0;
        hal_unit_start(unit, &commands_[unit],
                       reinterpret_cast<const lora_list *>(card->local(list)),
                       reinterpret_cast<const lora_step_state *>(card->local(state)));
    }

    bool over(uint32_t unit, Result &result) override {
        hal_unit_result found = {};
        if (asked_[unit]++ % poll_every_) return false;
        uint32_t state = hal_unit_poll(unit, &found);
        if (state != LORA_UNIT_DONE && state != LORA_UNIT_FAILED) return false;
        result.state = state;
        result.status = found.status;
        result.nonfinite_count = found.nonfinite_count;
        result.nonfinite_row = found.nonfinite_row;
        result.value = found.value;
        result.port = found.port;
        result.frames[0] = found.frames_sent;
        result.frames[1] = found.frames_received;
        result.frames[2] = found.frames_dropped;
        return true;
    }

    void abort(uint32_t unit) override { hal_unit_abort(unit); }
    void trace(uint32_t index, uint32_t rows, bool end) override {
        if (traces_) hal_trace(index, nullptr, rows, end);
    }
    void segments(uint32_t groups[SEGMENTS]) override { hal_unit_segments(ROUTER, groups); }

    bool progress(uint32_t words[PROGRESS_WORDS]) override {
        lora_router_record record = {};
        hal_router_progress(&record);
        words[0] = record.waits;
        memcpy(words + 1, record.sent, sizeof record.sent);
        memcpy(words + 3, record.received, sizeof record.received);
        return true;
    }

  private:
    lora_command commands_[LORA_UNITS];
    uint32_t poll_every_, asked_[LORA_UNITS] = {};
    bool traces_;
};

// Board memory by the addresses that the arenas' records give.
inline uint32_t memory(uint64_t address, uint32_t lanes, uint32_t data) {
    uint32_t count = hal_register(LORA_REG_ARENA_COUNT);
    for (uint32_t i = 0; i < count; i++) {
        lora_arena_record arena;
        uint32_t words[sizeof arena / 4];
        for (uint32_t w = 0; w < sizeof arena / 4; w++)
            words[w] = hal_register(LORA_REG_ARENAS + i * uint32_t(sizeof arena) + 4 * w);
        memcpy(&arena, words, sizeof arena);
        if (!arena.valid || address - arena.base >= arena.bytes) continue;
        uint64_t offset = arena.offset + (address - arena.base);
        if (!lanes) {
            hal_read(arena.bank, offset, &data, 4);
            return data;
        }
        uint32_t first = uint32_t(__builtin_ctz(lanes));
        data >>= 8 * first;
        hal_write(arena.bank, offset + first, &data, uint32_t(__builtin_popcount(lanes)));
        return 0;
    }
    fail("an address of no arena", uint32_t(address >> 12));
}

inline bool host_writes(uint32_t offset) {
    return (offset != LORA_REG_AP_CTRL && offset < LORA_REG_IDENTITY_ABI) ||
           offset == LORA_REG_WATCHDOG_MS || offset == LORA_REG_TOKEN ||
           offset == LORA_REG_CANCEL || offset >= LORA_REG_ARENAS;
}

class Control {
  public:
    // `traces`: hal_trace is told commands.
    Control(uint32_t seed, uint32_t poll_every, bool traces)
        : units_(poll_every, traces), card_(seed, memory, units_) {
        units_.card = &card_;
        begin();
    }

    // The control program begins, as after `restart`. What the host has written is written again.
    void begin() {
        static const std::vector<uint8_t> code = read_code();
        runs_ = false;
        links_.begin();
        card_.begin(code.data(), uint32_t(code.size()));
        for (uint32_t address; card_.take_store(address);) continue;
        for (uint32_t i = 0; i < REGISTERS; i++) {
            known_[i] = 0;
            if (4 * i >= LORA_REG_ARENAS) card_.host_write(i, 0);
        }
        for (uint32_t i = 0; i < BOOT_CYCLES; i++) cycle();
    }

    void cycle() {
        card_.clock();
        VControl &core = card_.core();
        if (core.stopped) fail("the core has stopped", core.stopped_pc);
        if (*card_.difference()) fail(card_.difference(), core.retired_pc);
        links_.see(card_);
        for (uint32_t address; card_.take_store(address);) see_store(address);
    }

    // What the host has written since, that it has read the done bit, then its start.
    void take_registers() {
        for (uint32_t i = 0; i < REGISTERS; i++) {
            uint32_t value = hal_register(4 * i);
            if (!host_writes(4 * i) || value == known_[i]) continue;
            known_[i] = value;
            card_.host_write(i, value);
        }
        if (runs_) return;
        uint32_t control = hal_register(LORA_REG_AP_CTRL);
        if (card_.core().done && !(control & LORA_AP_DONE)) card_.host_read(LORA_REG_AP_CTRL / 4);
        if (!(control & LORA_AP_START)) return;
        card_.host_write(LORA_REG_AP_CTRL / 4, LORA_AP_START);
        runs_ = true;
    }

    void test_links() { links_.test(card_); }

    bool runs() const { return runs_; }               // an operation
    bool testing() const { return links_.testing(); } // links
    Card &card() { return card_; }

  private:
    void see_store(uint32_t address) {
        links_.see_store(card_, address);
        uint32_t offset = address - CARD_REGISTERS;
        if (offset < REGISTERS * 4) give_register(offset);
    }

    // As the host would read it. A start that the control has not had yet stays.
    void give_register(uint32_t offset) {
        uint32_t value = card_.host_look(offset / 4);
        bool control = offset == LORA_REG_AP_CTRL;
        if (control && !runs_) return;
        known_[offset / 4] = value;
        hal_set_register(offset, value);
        if (control && (value & LORA_AP_DONE)) runs_ = false;
    }

    BoardUnits units_;
    Card card_;
    BoardLinks links_;
    bool runs_ = false;
    uint32_t known_[REGISTERS] = {};
};

} // namespace hal

#endif

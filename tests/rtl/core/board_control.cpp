// The control of an emulated board in hardware: what firmware.h declares, by a simulated control
// that runs the committed image. Registers, board memory, units and links are the emulated board's,
// reached as the firmware's host build reaches them (hal.h). LORA_TEST_IMAGE names the image's
// file.
#include "card.hpp"

extern "C" {
#include "firmware.h"
#include "hal.h"
}
#include "hal_card.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

struct fw {
    uint32_t unused;
};

namespace {

constexpr uint32_t SLICE_CYCLES = 500;  // between two looks of the other boards
constexpr uint32_t QUIET_CYCLES = 60;   // in which only units work: they have to be run
constexpr uint64_t MAX_OWED = 1u << 20; // cycles in which nothing but time passes
constexpr uint32_t BOOT_CYCLES = 3000;
constexpr uint32_t REGISTERS = (LORA_REG_ARENAS + LORA_MAX_ARENAS * 32) / 4;

[[noreturn]] void fail(const char *what, uint32_t number) {
    fprintf(stderr, "simulated control: %s (%#x)\n", what, number);
    abort();
}

std::vector<uint8_t> read_code() {
    const char *path = getenv("LORA_TEST_IMAGE");
    std::ifstream file(path ? path : "", std::ios::binary);
    std::vector<uint8_t> image((std::istreambuf_iterator<char>(file)), {});
    lora_image_header header;
    if (image.size() <= sizeof header) fail("LORA_TEST_IMAGE names no firmware image", 0);
    memcpy(&header, image.data(), sizeof header);
    if (header.magic != LORA_IMAGE_MAGIC || header.entry != 0) fail("not an image", header.magic);
    return {image.begin() + header.size, image.end()};
}

// The emulated board's units.
class BoardUnits : public Units {
  public:
    Card *card = nullptr;

    void start(uint32_t unit, const uint32_t *command, uint32_t list, uint32_t state) override {
        memcpy(&commands_[unit], command, sizeof commands_[unit]);
        hal_unit_start(unit, &commands_[unit],
                       reinterpret_cast<const lora_list *>(card->local(list)),
                       reinterpret_cast<const lora_step_state *>(card->local(state)));
    }

    bool over(uint32_t unit, Result &result) override {
        hal_unit_result found = {};
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
};

// Board memory by the addresses that the arenas' records give.
uint32_t memory(uint64_t address, uint32_t lanes, uint32_t data) {
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

std::atomic<uint64_t> cycles_of_all{0}; // of controls that are no more

bool host_writes(uint32_t offset) {
    return (offset != LORA_REG_AP_CTRL && offset < LORA_REG_IDENTITY_ABI) ||
           offset == LORA_REG_WATCHDOG_MS || offset == LORA_REG_TOKEN ||
           offset == LORA_REG_CANCEL || offset >= LORA_REG_ARENAS;
}

class BoardControl {
  public:
    BoardControl() : card_(1, memory, units_) {
        static const std::vector<uint8_t> code = read_code();
        units_.card = &card_;
        card_.begin(code.data(), uint32_t(code.size()));
        for (uint32_t i = LORA_REG_ARENAS / 4; i < REGISTERS; i++) card_.host_write(i, 0);
        for (uint32_t i = 0; i < BOOT_CYCLES; i++) cycle();
        seen_ = hal_cycles();
    }

    ~BoardControl() { cycles_of_all += card_.cycle(); }

    uint64_t cycles() const { return card_.cycle(); }

    uint32_t poll() {
        take_registers();
        if (testing_) test_links();
        uint64_t owed = waits_ ? hal_cycles() - seen_ : 0, quiet = 0, ran = 0;
        seen_ = hal_cycles();
        if (owed > MAX_OWED) owed = MAX_OWED;
        for (waits_ = false; ran < SLICE_CYCLES || ran < owed; ran++) {
            bool ran_before = runs_;
            cycle();
            quiet = card_.units().moved() || !card_.units().works() ? 0 : quiet + 1;
            if (ran_before && !runs_) return LORA_FW_DONE;
            if (quiet > QUIET_CYCLES && ran >= owed) break;
        }
        waits_ = runs_ && (quiet > QUIET_CYCLES || testing_);
        return !runs_ ? LORA_FW_IDLE : waits_ ? LORA_FW_WAITING : LORA_FW_RUNNING;
    }

  private:
    void cycle() {
        card_.clock();
        VControl &core = card_.core();
        core.link_test_done = core.link_test_failed = 0;
        if (core.stopped) fail("the core has stopped", core.stopped_pc);
        if (*card_.difference()) fail(card_.difference(), core.retired_pc);
        if (core.link_poison)
            hal_links_poison(
                reinterpret_cast<const lora_list *>(card_.local(core.link_list)),
                reinterpret_cast<const lora_step_state *>(card_.local(core.link_state)));
        if (core.link_test_start) begin_link_test();
        for (uint32_t address; card_.take_store(address);) see_store(address);
    }

    void see_store(uint32_t address) {
        if (address == CARD_LINKS + CARD_LINK_EPOCH) hal_links_epoch(card_.core().link_epoch);
        uint32_t offset = address - CARD_REGISTERS;
        if (offset < REGISTERS * 4) give_register(offset);
    }

    // What the host has written since, then its start.
    void take_registers() {
        for (uint32_t i = 0; i < REGISTERS; i++) {
            uint32_t value = hal_register(4 * i);
            if (!host_writes(4 * i) || value == known_[i]) continue;
            known_[i] = value;
            card_.host_write(i, value);
        }
        if (runs_ || !(hal_register(LORA_REG_AP_CTRL) & LORA_AP_START)) return;
        card_.host_write(LORA_REG_AP_CTRL / 4, LORA_AP_START);
        runs_ = true;
    }

    // As the host would read it. A start that the control has not had yet stays.
    void give_register(uint32_t offset) {
        uint32_t value = card_.host_read(offset / 4);
        bool control = offset == LORA_REG_AP_CTRL;
        if (control && !runs_) return;
        known_[offset / 4] = value;
        hal_set_register(offset, value);
        if (control && (value & LORA_AP_DONE)) runs_ = false;
    }

    // The link kernels read the test's record in local memory, and write it at the end.
    void begin_link_test() {
        memcpy(&test_, card_.local(card_.core().link_test), sizeof test_);
        testing_ = true;
    }

    void test_links() {
        uint32_t state = hal_link_test(&test_), words[sizeof test_ / 4];
        if (state == LORA_UNIT_BUSY) return;
        testing_ = false;
        memcpy(words, &test_, sizeof words);
        for (uint32_t i = 0; i < sizeof words / 4; i++)
            card_.store_local(card_.core().link_test + 4 * i, words[i]);
        card_.core().link_test_done = state == LORA_UNIT_DONE;
        card_.core().link_test_failed = state != LORA_UNIT_DONE;
    }

    BoardUnits units_;
    Card card_;
    bool runs_ = false, waits_ = false, testing_ = false;
    uint64_t seen_ = 0;
    lora_link_test test_ = {};
    uint32_t known_[REGISTERS] = {};
};

std::mutex lock;
std::map<const fw *, std::unique_ptr<BoardControl>> controls;

BoardControl &control_of(const fw *board) {
    std::lock_guard<std::mutex> held(lock);
    auto &control = controls[board];
    if (!control) control = std::make_unique<BoardControl>();
    return *control;
}

} // namespace

uint32_t fw_bytes(void) { return sizeof(fw); }

void fw_reset(fw *board) {
    std::lock_guard<std::mutex> held(lock);
    controls.erase(board);
}

uint32_t fw_poll(fw *board) { return control_of(board).poll(); }

// Of all controls of this process.
extern "C" uint64_t simulated_cycles(void) {
    std::lock_guard<std::mutex> held(lock);
    uint64_t sum = cycles_of_all;
    for (const auto &[board, control] : controls) sum += control->cycles();
    return sum;
}

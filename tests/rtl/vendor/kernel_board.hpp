// A packed kernel in the place of an emulated board's firmware, units and link kernels: registers
// by AXI4-Lite, done by the interrupt, board memory by AXI4 ports at the addresses of the shell,
// frames by AXI streams. What the host sees is what it sees of an emulated board.
#ifndef LORA_TEST_KERNEL_BOARD_HPP
#define LORA_TEST_KERNEL_BOARD_HPP

#include "../axi/axi_ports.hpp"
#include "../crossing/lite_host.hpp"
#include "banks.hpp"
#include "kernel_frames.hpp"

#include "Vpacked_kernel.h"
#include <verilated.h>

extern "C" {
#include "hal.h"
int card_read_fails(void);
}

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

class KernelBoard {
    using Model = Vpacked_kernel;
    enum : uint32_t {
        RESET_CYCLES = 16,
        BOOT_CYCLES = 400'000,
        LOOK_CYCLES = 2'000, // between two looks at registers of a run
        ARENA_WORDS = sizeof(lora_arena_record) / 4,
        ARENAS = LORA_REG_ARENAS / 4,
        REGISTERS = ARENAS + LORA_MAX_ARENAS * ARENA_WORDS,
        READ_ONLY_END = LORA_REG_UNIT_STATE + 4 * LORA_UNITS,
    };
    static constexpr uint64_t UNKNOWN = 1ull << 32; // no word

  public:
    explicit KernelBoard(uint32_t seed)
        : context_(seeded(seed)), model_(context_.get()), host_(model_, seed),
          memory_(
              model_, {std::begin(BANKS), std::end(BANKS)}, CONTROL_BANK,
              [](bool units, uint64_t a, uint64_t s, Line &l) { return access(units, a, s, l); },
              seed + 1) {
        model_.ap_rst_n = 0;
        model_.host_rst = 1;
        host_.quiet();
        memory_.quiet();
        frames_.quiet(model_);
        for (uint32_t i = 0; i < RESET_CYCLES; i++) clock();
        model_.ap_rst_n = 1;
        model_.host_rst = 0;
        while (read(LORA_REG_IDENTITY_ABI) != LORA_ABI_NUMBER)
            if (cycles_ > BOOT_CYCLES) fail("the control program does not begin");
        if (read(LORA_REG_FIRMWARE_CRC) != hal_register(LORA_REG_FIRMWARE_CRC) &&
            hal_register(LORA_REG_FIRMWARE_CRC))
            fail("another control program");
        write(LORA_REG_GIE, 1);
        write(LORA_REG_IER, 1);
        give(LORA_REG_IDENTITY_ABI, READ_ONLY_END);
        // records of arenas begin with any bits
        std::fill(known_ + ARENAS, known_ + REGISTERS, UNKNOWN);
    }

    // So many cycles. Whether a run has ended.
    bool run(uint32_t cycles) {
        take_registers();
        for (uint64_t end = cycles_ + cycles; cycles_ < end;) {
            clock();
            if (runs_ && model_.interrupted) return finish(), true;
            if (!runs_ || cycles_ - looked_ < LOOK_CYCLES) continue;
            looked_ = cycles_;
            give(LORA_REG_LAST_STEP, LORA_REG_CANCEL);
        }
        return false;
    }

    bool runs() const { return runs_; }
    uint64_t cycles() const { return cycles_; }

  private:
    [[noreturn]] static void fail(const std::string &why) {
        std::fprintf(stderr, "packed kernel: %s\n", why.c_str());
        std::abort();
    }

    static std::unique_ptr<VerilatedContext> seeded(uint32_t seed) {
        auto context = std::make_unique<VerilatedContext>();
        context->randReset(2);
        context->randSeed(int(seed & 0x7fffffff) | 1);
        return context;
    }

    // --- board memory: an address says bank and offset ---
    static bool access(bool units, uint64_t address, uint64_t strobe, Line &line) {
        uint32_t bank = 0;
        while (address - BANKS[bank].first >= BANKS[bank].bytes) bank++; // rules: it is of one
        uint64_t offset = address - BANKS[bank].first;
        if (!strobe) {
            hal_read(BANK_NUMBERS[bank], offset, line.data(), sizeof line);
            return units && card_read_fails();
        }
        const auto *bytes = reinterpret_cast<const uint8_t *>(line.data());
        for (uint32_t i = 0, end; i < sizeof line; i = end) { // runs of bytes
            for (end = i + 1; end < sizeof line && !((strobe >> end ^ strobe >> i) & 1);) end++;
            if (strobe >> i & 1) hal_write(BANK_NUMBERS[bank], offset + i, bytes + i, end - i);
        }
        hal_fence(BANK_NUMBERS[bank], offset); // it is there when it is answered
        return false;
    }

    // --- registers ---
    static bool host_writes(uint32_t offset) {
        return (offset > LORA_REG_ISR && offset < LORA_REG_IDENTITY_ABI) ||
               offset == LORA_REG_WATCHDOG_MS || offset == LORA_REG_TOKEN ||
               offset == LORA_REG_CANCEL || offset >= LORA_REG_ARENAS;
    }

    // A word of an arena's record.
    static bool in_use(uint32_t place) {
        uint32_t record = (place - ARENAS) / ARENA_WORDS;
        return hal_register(LORA_REG_ARENAS + record * uint32_t(sizeof(lora_arena_record)) +
                            offsetof(lora_arena_record, valid));
    }

    // As the host of a card writes it: an arena lies where the shell has its bank.
    static uint32_t host_value(uint32_t place) {
        if (place < ARENAS) return hal_register(4 * place);
        uint32_t word = (place - ARENAS) % ARENA_WORDS;
        if (word > 1) return hal_register(4 * place);
        lora_arena_record arena;
        uint32_t words[ARENA_WORDS];
        for (uint32_t w = 0; w < ARENA_WORDS; w++) words[w] = hal_register(4 * (place - word + w));
        std::memcpy(&arena, words, sizeof arena);
        if (!arena.valid) return 0;
        for (uint32_t b = 0; b < std::size(BANKS); b++)
            if (BANK_NUMBERS[b] == arena.bank)
                return uint32_t((BANKS[b].first + arena.offset) >> 32 * word);
        fail("an arena in a bank without a port");
    }

    // The host writes meanwhile: what it has written before a start is there with it.
    void take_registers() {
        bool starts = hal_register(LORA_REG_AP_CTRL) & LORA_AP_START;
        for (uint32_t i = 0; i < REGISTERS; i++) {
            if (!host_writes(4 * i) || (known_[i] == UNKNOWN && !in_use(i))) continue;
            uint32_t value = host_value(i);
            if (value == known_[i]) continue;
            known_[i] = value;
            write(4 * i, value);
        }
        if (runs_ || !starts) return;
        write(LORA_REG_AP_CTRL, LORA_AP_START);
        runs_ = true;
    }

    // What the host may read.
    void give(uint32_t first, uint32_t end) {
        for (uint32_t offset = first; offset < end; offset += 4) {
            if (offset == LORA_REG_IDENTITY_SERIAL || offset == LORA_REG_WATCHDOG_MS ||
                offset == LORA_REG_CANCEL)
                continue; // the emulated board's own, and what the host alone writes
            known_[offset / 4] = read(offset);
            hal_set_register(offset, uint32_t(known_[offset / 4]));
        }
    }

    void finish() {
        uint32_t control = read(LORA_REG_AP_CTRL);
        if (!(control & LORA_AP_DONE)) fail("an interrupt without done");
        if (read(LORA_REG_AP_CTRL) & LORA_AP_DONE) fail("done is seen twice");
        write(LORA_REG_ISR, 1);
        give(LORA_REG_FIRMWARE_CRC, READ_ONLY_END);
        if (model_.interrupted) fail("the interrupt stays");
        hal_set_register(LORA_REG_AP_CTRL, control);
        runs_ = false;
    }

    uint32_t read(uint32_t address) {
        host_.ask(address, false, 0);
        wait(address);
        return host_.data;
    }
    void write(uint32_t address, uint32_t value) {
        host_.ask(address, true, value);
        wait(address);
    }
    void wait(uint32_t address) {
        for (uint32_t i = 0; host_.pending(); i++) {
            if (i == 10'000) fail("a register does not answer: " + std::to_string(address));
            clock();
        }
        if (host_.response) fail("a register is refused: " + std::to_string(address));
    }

    void clock() {
        bool resets = !model_.ap_rst_n;
        host_.see();
        memory_.see(resets);
        if (!resets) frames_.see(model_);
        model_.ap_clk = 1;
        model_.eval();
        if (!resets) {
            host_.drive();
            memory_.drive();
            frames_.drive(model_);
        }
        model_.ap_clk = 0;
        model_.eval();
        cycles_++;
        if (!host_.broken().empty()) fail(host_.broken());
        if (cycles_ % 64 == 0 && !memory_.broken().empty()) fail(memory_.broken());
    }

    std::unique_ptr<VerilatedContext> context_;
    Model model_;
    LiteHost<Model> host_;
    AxiPorts<Model> memory_;
    KernelFrames<Model> frames_;
    bool runs_ = false;
    uint64_t cycles_ = 0, looked_ = 0;
    uint64_t known_[REGISTERS] = {};
};

#endif

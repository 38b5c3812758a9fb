// The packed kernel behind a shell: AXI4-Lite host, AXI4 memory, the control program from its ROM.
// Prints what the host has read.
#include "../crossing/axi_memory.hpp"
#include "../crossing/lite_host.hpp"

#include "Vkernel_bench.h"
#include <lora/abi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <verilated.h>

namespace {
constexpr uint64_t BASE = 0x40'0001'0000;
constexpr uint32_t BANK = 32, BYTES = 1 << 20, MOST_CYCLES = 3'000'000;

class Shell {
  public:
    Shell()
        : host_(bench_, 1),
          memory_(
              bench_, [this](uint64_t a, uint32_t l, uint32_t d) { return word(a, l, d); }, 2) {}

    void reset(uint32_t cycles) {
        bench_.host_rst = bench_.memory_rst = 1;
        host_.quiet();
        memory_.quiet();
        for (uint32_t i = 0; i < cycles; i++) clock();
        bench_.host_rst = bench_.memory_rst = 0;
    }
    uint32_t read(uint32_t address) {
        host_.ask(address, false, 0);
        wait();
        return host_.data;
    }
    void write(uint32_t address, uint32_t value) {
        host_.ask(address, true, value);
        wait();
    }
    bool refused() const { return host_.response == 2; }
    bool interrupted() const { return bench_.interrupted; }
    uint32_t stored(uint64_t offset) { return word(BASE + offset, 0, 0); }

    void clock() {
        host_.see();
        memory_.see();
        bench_.ap_clk = 1;
        bench_.eval();
        if (!bench_.host_rst) {
            host_.drive();
            memory_.drive();
        }
        bench_.ap_clk = 0;
        bench_.eval();
        if (++cycles_ > 20 * MOST_CYCLES) fail("the end does not come");
        if (!host_.broken().empty()) fail(host_.broken().c_str());
        if (!memory_.broken().empty()) fail(memory_.broken().c_str());
    }
    [[noreturn]] static void fail(const char *why) {
        std::printf("%s\n", why);
        std::exit(1);
    }

  private:
    void wait() {
        for (uint32_t i = 0; host_.pending(); i++) {
            if (i == 10000) fail("an access has no answer");
            clock();
        }
    }
    uint32_t word(uint64_t address, uint32_t lanes, uint32_t data) {
        uint32_t &there = words_[address / 4];
        for (uint32_t lane = 0; lane < 4; lane++)
            if (lanes >> lane & 1)
                there = (there & ~(0xffu << 8 * lane)) | (data & 0xffu << 8 * lane);
        return there;
    }

    Vkernel_bench bench_;
    std::map<uint64_t, uint32_t> words_;
    LiteHost<Vkernel_bench> host_;
    AxiMemory<Vkernel_bench> memory_;
    uint64_t cycles_ = 0;
};

// One operation: the done bit is seen once, with the interrupt.
void operate(Shell &shell, uint32_t operation) {
    const uint32_t arena[] = {uint32_t(BASE), uint32_t(BASE >> 32), 0, 0, BYTES, 0, BANK, 1};
    for (uint32_t i = 0; i < 8; i++) shell.write(LORA_REG_ARENAS + 4 * i, arena[i]);
    shell.write(LORA_REG_ARENA_COUNT, 1);
    shell.write(LORA_REG_CONTROL_BANK, BANK);
    shell.write(LORA_REG_BANK, BANK);
    shell.write(LORA_REG_OFFSET_LO, 4096);
    shell.write(LORA_REG_BYTES_LO, 4096);
    shell.write(LORA_REG_WATCHDOG_MS, 1000);
    shell.write(LORA_REG_GIE, 1);
    shell.write(LORA_REG_IER, 1);
    shell.write(LORA_REG_OPERATION, operation);
    shell.write(LORA_REG_AP_CTRL, LORA_AP_START);
    for (uint32_t i = 0; !shell.interrupted(); i++) {
        if (i == MOST_CYCLES) Shell::fail("no interrupt");
        shell.clock();
    }
    if (!(shell.read(LORA_REG_AP_CTRL) & LORA_AP_DONE)) Shell::fail("interrupt without done");
    if (shell.read(LORA_REG_AP_CTRL) & LORA_AP_DONE) Shell::fail("done is seen twice");
    shell.write(LORA_REG_ISR, 1);
    for (uint32_t i = 0; i < 20; i++) shell.clock();
    if (shell.interrupted()) Shell::fail("the interrupt stays");
}

void print(const char *name, uint32_t value, const char *end = ", ") {
    std::printf("\"%s\": %u%s", name, value, end);
}
} // namespace

int main() {
    Verilated::randReset(2);
    Verilated::randSeed(3);
    Shell shell;
    std::printf("[");
    for (uint32_t round = 0; round < 2; round++) {
        shell.reset(16);
        uint32_t tries = 0;
        while (shell.read(LORA_REG_IDENTITY_ABI) != LORA_ABI_NUMBER)
            if (++tries == 20000) Shell::fail("the control program does not begin");
        std::printf("%s{", round ? ", " : "");
        print("board", shell.read(LORA_REG_IDENTITY_BOARD));
        print("crc", shell.read(LORA_REG_FIRMWARE_CRC));
        uint32_t outside = 0;
        for (uint32_t address : {0x1400u, 0x1ffcu, 0x2000u, 0x2040u, 0xfffcu}) {
            shell.read(address);
            outside += shell.refused();
        }
        print("refused", outside);
        operate(shell, LORA_OP_IDENTIFY);
        print("abi", shell.stored(LORA_COMPLETION_OFFSET + 4));
        print("operation", shell.stored(LORA_COMPLETION_OFFSET + 8));
        print("status", shell.stored(LORA_COMPLETION_OFFSET + 12));
        operate(shell, LORA_OP_CHECKSUM); // of a unit that is absent
        print("absent", shell.stored(LORA_COMPLETION_OFFSET + 12));
        print("code", shell.stored(LORA_ERROR_OFFSET + 4));
        print("unit", shell.stored(LORA_ERROR_OFFSET + 16), "}");
    }
    std::printf("]\n");
    return 0;
}

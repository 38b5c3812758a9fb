// Random programs on the soft core and on the reference, an instruction at a time: addresses,
// registers, accesses to devices, why it stopped, and local memory at the end. Waits, resets and
// the state at the beginning are random.
//   lockstep --instructions N --seed S    prints one JSON line
//   lockstep --halves 0                   each 16-bit encoding by itself
//   lockstep --time FILE                  cycles at which the instructions of a program are done
#include "VCore.h"
#include "programs.h"
#include "verilated.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

namespace {

constexpr uint64_t LOOPING = 1000;          // instructions done without a new one among them
constexpr uint32_t PROLOGUE_BYTES = 31 * 8; // sets the registers
constexpr uint64_t QUIET_CYCLES = 1000;     // without an instruction done

uint64_t the_seed;

[[noreturn]] void fail(const char *form, ...) {
    va_list arguments;
    va_start(arguments, form);
    fprintf(stderr, "program %llu: ", static_cast<unsigned long long>(the_seed));
    vfprintf(stderr, form, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

struct Tally {
    uint64_t programs = 0, instructions = 0, cycles = 0, accesses = 0, stops = 0, resets = 0,
             places = 0;
};

bool answers(uint32_t address) { return address - DEVICE < DEVICE_BYTES; }

// What the core has asked of devices; the reference asks for the same later.
struct Device {
    std::deque<bus_access> asked;
    uint32_t count = 0;

    static int expect(void *context, bus_access *access) {
        auto &device = *static_cast<Device *>(context);
        if (device.asked.empty()) fail("an access to %#x is missing", access->address);
        bus_access found = device.asked.front();
        device.asked.pop_front();
        if (found.address != access->address || found.bytes != access->bytes ||
            (found.bytes && found.data != access->data))
            fail("access %#x, bytes %x, data %#x; expected %#x, %x, %#x", found.address,
                 found.bytes, found.data, access->address, access->bytes, access->data);
        access->data = found.data;
        return answers(found.address);
    }
};

class Lockstep {
  public:
    explicit Lockstep(uint64_t seed) : random_(seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed % 0x7fffffff) + 1);
        core_ = std::make_unique<VCore>(&context_);
        core_->clk = 0;
    }

    // Prints [address, cycle] of each instruction until one stops the core.
    void time(const char *path) {
        FILE *file = fopen(path, "rb");
        if (!file || fread(memory_, 1, LOCAL_BYTES, file) == 0) fail("%s: not read", path);
        fclose(file);
        reset(false);
        const char *between = "[";
        for (uint64_t cycle = 0; !core_->stopped && cycle < QUIET_CYCLES; cycle++) {
            settle();
            if (core_->retired) {
                printf("%s[%u, %llu]", between, core_->retired_pc, (unsigned long long)cycle);
                between = ", ";
            }
            clock();
        }
        puts("]");
    }

    // Each 16-bit encoding at address 0, from registers that a program has set; zeros, which stop
    // the core, follow it and lie where it jumps to. Returns how many are instructions.
    uint64_t halves() {
        program_make(&machine_, 1);
        memcpy(memory_, machine_.memory, LOCAL_BYTES);
        machine_.code_end = 0;
        machine_.bus = Device::expect;
        machine_.context = &device_;
        reset(false);
        while (machine_.pc < PROLOGUE_BYTES) advance();
        reset(true);
        memset(memory_, 0, CODE_BYTES);
        memset(machine_.memory, 0, CODE_BYTES);
        uint64_t done = 0;
        for (uint32_t half = 0; half < 0x10000; half++) {
            if ((half & 3) == 3) continue;
            the_seed = half;
            reset(true); // what runs may be a loop
            memcpy(memory_, &half, 4);
            memcpy(machine_.memory, &half, 4);
            unsigned retired = 0;
            for (unsigned cycle = 0; cycle < 40 && !core_->stopped; cycle++) retired += advance();
            if (core_->stopped) stop();
            done += retired != 0;
        }
        return done;
    }

    void run(Tally &tally) {
        program_make(&machine_, static_cast<uint32_t>(the_seed));
        memcpy(memory_, machine_.memory, LOCAL_BYTES);
        machine_.bus = Device::expect;
        machine_.context = &device_;
        std::vector<bool> seen(LOCAL_BYTES / 2);
        slow_ = random_() % 3;
        uint64_t reset_at = random_() % 4 ? ~0ull : 1 + random_() % 3000;
        reset(false);
        uint64_t done = 0, quiet = 0, known = 0;
        for (uint64_t cycle = 0; known < LOOPING; cycle++, tally.cycles++) {
            if (cycle == reset_at) {
                reset(true);
                memcpy(machine_.memory, memory_, LOCAL_BYTES); // a store may have been on its way
                tally.resets++;
            }
            settle();
            if (core_->retired) {
                auto place = seen[(core_->retired_pc & (LOCAL_BYTES - 1)) / 2];
                known = place ? known + 1 : 0;
                place = true;
                step();
                done++;
                quiet = 0;
            } else if (++quiet > QUIET_CYCLES) fail("nothing happens behind %#x", machine_.pc);
            if (core_->stopped || machine_.code_stores) break;
            clock();
        }
        if (core_->stopped) {
            stop();
            tally.stops++;
        }
        if (machine_.code_stores == 0) {
            if (!core_->stopped) drain();
            compare_memory();
        }
        for (bool one : seen) tally.places += one;
        tally.instructions += done;
        tally.accesses += device_.count;
        tally.programs++;
    }

  private:
    bool advance() {
        settle();
        bool retired = core_->retired;
        if (retired) step();
        if (!core_->stopped) clock();
        return retired;
    }

    void reset(bool runs) {
        core_->rst = 1;
        for (unsigned i = 1 + random_() % 3; i; i--) {
            settle();
            if (runs && core_->retired) step(); // what was done before it
            clock();
        }
        core_->rst = 0;
        machine_.pc = 0;
        device_.asked.clear();
        waits_ = 0;
    }

    void settle() {
        core_->fetch_data = fetched_;
        core_->local_data = loaded_;
        core_->bus_ready = core_->bus_valid && waits_ == 0;
        core_->bus_error = core_->bus_ready && !answers(core_->bus_address);
        core_->bus_data = device_answer(device_.count, core_->bus_address);
        core_->eval();
    }

    // The clock's edge: memory sees what the core asked for before it.
    void clock() {
        if (core_->fetch_read) memcpy(&fetched_, memory_ + 4 * core_->fetch_word, 4);
        if (core_->local_reads) {
            uint8_t *at = memory_ + 4 * core_->local_word;
            memcpy(&loaded_, at, 4);
            for (int lane = 0; lane < 4; lane++)
                if (core_->local_write >> lane & 1)
                    at[lane] = static_cast<uint8_t>(core_->local_stored >> 8 * lane);
        } else loaded_ = static_cast<uint32_t>(random_());
        bool begins = !core_->bus_valid;
        if (core_->bus_ready) {
            bus_access access = {core_->bus_address, core_->bus_write,
                                 core_->bus_write ? core_->bus_stored : core_->bus_data};
            device_.asked.push_back(access);
            device_.count++;
            begins = true;
        }
        if (begins) waits_ = slow_ ? random_() % (4 * slow_) : 0;
        else if (waits_) waits_--;
        core_->clk = 1;
        core_->eval();
        core_->clk = 0;
    }

    void step() {
        retired expected;
        uint32_t cause = reference_step(&machine_, &expected);
        if (cause) fail("%#x is done; it stops the core, cause %u", core_->retired_pc, cause);
        if (core_->retired_pc != expected.pc)
            fail("%#x is done, expected %#x", core_->retired_pc, expected.pc);
        if (core_->retired_writes != expected.writes ||
            (expected.writes &&
             (core_->retired_rd != expected.rd || core_->retired_value != expected.value)))
            fail("%#x writes %u: x%u = %#x, expected %u: x%u = %#x", expected.pc,
                 core_->retired_writes, core_->retired_rd, core_->retired_value, expected.writes,
                 expected.rd, expected.value);
    }

    // The last stage may still hold an instruction.
    void stop() {
        for (int i = 0; i < 4; i++) {
            clock();
            settle();
            if (core_->retired) step();
            if (core_->bus_valid) fail("a core that has stopped asks for %#x", core_->bus_address);
        }
        retired none;
        uint32_t pc = machine_.pc, cause = reference_step(&machine_, &none);
        if (core_->stopped_pc != pc || core_->stopped_cause != cause)
            fail("stopped at %#x, cause %u; expected %#x, cause %u", core_->stopped_pc,
                 core_->stopped_cause, pc, cause);
    }

    // The instruction in the last stage: its store is in memory already.
    void drain() {
        settle();
        if (core_->retired) step();
    }

    void compare_memory() {
        for (uint32_t at = 0; at < LOCAL_BYTES; at++)
            if (machine_.memory[at] != memory_[at])
                fail("memory at %#x is %02x, expected %02x", at, memory_[at], machine_.memory[at]);
    }

    std::mt19937_64 random_;
    VerilatedContext context_;
    std::unique_ptr<VCore> core_;
    machine machine_;
    Device device_;
    uint8_t memory_[LOCAL_BYTES];
    uint32_t fetched_ = 0, loaded_ = 0;
    uint64_t waits_ = 0, slow_ = 0;
};

} // namespace

int main(int argc, char **argv) {
    uint64_t wanted = 0, seed = 1;
    if (argc == 3 && !strcmp(argv[1], "--halves")) {
        printf("{\"instructions\": %llu}\n",
               (unsigned long long)std::make_unique<Lockstep>(seed)->halves());
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "--time")) {
        std::make_unique<Lockstep>(seed)->time(argv[2]);
        return 0;
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--instructions")) wanted = strtoull(argv[i + 1], nullptr, 0);
        else if (!strcmp(argv[i], "--seed")) seed = strtoull(argv[i + 1], nullptr, 0);
    }
    Tally tally;
    for (the_seed = seed; tally.instructions < wanted; the_seed++) {
        auto lockstep = std::make_unique<Lockstep>(the_seed);
        lockstep->run(tally);
    }
    printf("{\"programs\": %llu, \"instructions\": %llu, \"cycles\": %llu, \"accesses\": %llu, "
           "\"stops\": %llu, \"resets\": %llu, \"places\": %llu}\n",
           (unsigned long long)tally.programs, (unsigned long long)tally.instructions,
           (unsigned long long)tally.cycles, (unsigned long long)tally.accesses,
           (unsigned long long)tally.stops, (unsigned long long)tally.resets,
           (unsigned long long)tally.places);
}

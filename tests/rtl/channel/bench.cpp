// SPDX-License-Identifier: Apache-2.0
// Matmuls on CHANNELS arrays as tests/rtl/channel_rig.py writes them, in groups: announced ahead,
// started in order. Status, counts and all bytes are the native kernels'.
//   bench FILE SEED         ports at random; groups are ended by abort or reset at any cycle, lines
//   fail, and they begin again bench FILE SEED +mistake=N  of a source with mistakes in it, one of
//   them bench FILE SEED timed LINES   ports give LINES in 4 cycles, 31 cycles late; prints the
//   cycles of each group
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "VChannels.h"
#include "lora/abi.h"
#include "random.hpp"
#include "verilated.h"

namespace {

constexpr uint32_t BANK_COUNT = 64, LIMIT = 1u << 21, NEVER = ~0u;
constexpr uint32_t DONE = 0, FAILED = 1, REFUSED = 7; // channel_types.sv
using Banks = std::map<uint32_t, std::vector<uint8_t>>;

struct Expected {
    uint32_t status, nonfinite_count, nonfinite_row, rows;
};
struct Command {
    lora_matrix fields;
    Expected expected;
};
struct Group {
    std::vector<Command> commands;
    Banks before, wanted;
};

[[noreturn]] void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

uint32_t read_word(std::ifstream &file) {
    uint32_t word = 0;
    file.read(reinterpret_cast<char *>(&word), sizeof word);
    return word;
}

// Banks that have changed: count, then number, bytes and content of each.
void read_changes(std::ifstream &file, Banks &banks) {
    for (uint32_t left = read_word(file); left > 0; left--) {
        std::vector<uint8_t> &bytes = banks[read_word(file)];
        bytes.resize(read_word(file));
        file.read(reinterpret_cast<char *>(bytes.data()),
                  static_cast<std::streamsize>(bytes.size()));
    }
}

bool read_group(std::ifstream &file, Group &group) {
    uint32_t count = read_word(file);
    if (!file) return false;
    group.commands.resize(count);
    file.read(reinterpret_cast<char *>(group.commands.data()),
              static_cast<std::streamsize>(count * sizeof(Command)));
    group.before = group.wanted;
    read_changes(file, group.before);
    group.wanted = group.before;
    read_changes(file, group.wanted);
    return bool(file);
}

struct Plan {
    uint32_t until = NEVER; // cycle of an abort
    bool resets = false;
    uint32_t fail_port = 0, fail_at = 0; // of what a port answers; 0: never
    uint32_t fault = FAILED;             // the status that it ends with
};

// A port: what is under way, and how often it takes and gives.
struct Request {
    uint64_t due;
    uint32_t bank, line, tag;
};
struct Port {
    std::deque<Request> under_way;
    uint32_t credit = 0;
};

class Bench {
  public:
    Bench(uint32_t seed, uint32_t timed, int count, char **arguments)
        : timed_(timed), random_(seed) {
        Verilated::threadContextp(&context_);
        context_.commandArgs(count, arguments);
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed & 0x7fffffff));
        unit_ = std::make_unique<VChannels>(&context_);
        unit_->clk = 0;
        reset();
        reset(); // a hierarchical block may take its first edge for none, as its clock begins with
                 // any bit
        settle();
    }

    std::map<std::string, uint64_t> counts;
    uint64_t cycles = 0;

    // Whether all commands ended well. `banks` as they are then.
    bool run(size_t number, const Group &group, Banks &banks, const Plan &plan) {
        number_ = number;
        group_ = &group;
        banks_ = &banks;
        plan_ = plan;
        told_ = started_ = ended_ = 0;
        failed_ = answer_failed_ = false;
        wait_ = start_wait_ = 0;
        draw_rates();
        uint64_t begin = cycles;
        while (ended_ < group.commands.size() && !failed_) {
            uint64_t now = cycles - begin;
            if (now == LIMIT) fail("group %zu, command %zu: no end", number, ended_);
            if (now >= plan.until) {
                end(plan.resets);
                own_rows_alone();
                return false;
            }
            step();
        }
        if (failed_) {
            for (uint32_t i = 0; !unit_->idle; i++) {
                if (i == LIMIT || unit_->result_valid)
                    fail("group %zu: not idle behind a failed line", number);
                cycle();
            }
            own_rows_alone();
            for (size_t i = 0; i + 1 < ended_; i++) rows_are_right(i);
            return false;
        }
        if (!unit_->idle && !timed_) { // what is asked for ahead of nothing is a mistake
            for (uint32_t i = 0; i < 64 && !unit_->idle; i++) cycle();
            if (!unit_->idle) fail("group %zu: not idle behind its last result", number);
        }
        if (under_way()) fail("group %zu: lines are under way behind the last result", number);
        return true;
    }

  private:
    void draw_rates() {
        takes_ = timed_ ? 0 : random_.below(4);
        gives_ = timed_ ? 0 : random_.below(4);
        late_ = timed_ ? 31 : 1 + random_.below(random_.once_in(2) ? 4 : 60);
        writes_ = timed_ ? 0 : random_.below(6);
    }

    static bool chance(Random &random, uint32_t busy) {
        return busy == 0 || !random.once_in(busy + 1);
    }

    void edge() { // the clock falls with the next cycle's inputs
        unit_->clk = 1;
        unit_->eval();
        cycles++;
    }

    void reset() {
        quiet_inputs();
        for (Port &port : ports_) port = {};
        unit_->rst = 1;
        unit_->clk = 0;
        unit_->eval();
        edge();
        unit_->rst = 0;
    }

    void quiet_inputs() {
        unit_->abort_valid = unit_->announce_valid = unit_->start_valid = 0;
        unit_->bank_ready = unit_->answer_valid = 0;
        unit_->read_ready = unit_->line_valid = unit_->write_ready = 0;
        no_faults();
    }

    void no_faults() {
        unit_->answer_refused = unit_->answer_failed = 0;
        unit_->line_refused = unit_->line_failed = 0;
    }

    bool under_way() const {
        for (const Port &port : ports_)
            if (!port.under_way.empty()) return true;
        return false;
    }

    void settle() {
        for (uint32_t i = 0; !unit_->idle; i++) {
            if (i == 1u << 16 || unit_->result_valid)
                fail("group %zu: no peace behind an abort", number_);
            cycle();
        }
        if (under_way()) fail("group %zu: idle while lines are under way", number_);
    }

    void end(bool resets) {
        counts[resets ? "resets" : "aborts"]++;
        counts["ended_running"] += started_ > ended_;
        counts["ended_under_way"] += under_way();
        unit_->announce_valid = unit_->start_valid = 0;
        if (resets) {
            reset();
        } else {
            unit_->abort_valid = 1;
            for (uint32_t more = random_.once_in(3) ? random_.below(50) : 0;; more--) {
                cycle();
                if (more == 0) break;
            }
            unit_->abort_valid = 0;
        }
        settle();
    }

    void give(const Command &it) {
        const lora_matrix &c = it.fields;
        VChannels &u = *unit_;
        uint32_t kind = c.weight_type & LORA_WEIGHT_TYPE_MASK,
                 log = c.weight_type >> LORA_WEIGHT_GROUP_SHIFT;
        u.k = static_cast<uint16_t>(c.k > 0xffff ? 0xffff : c.k);
        u.n = c.n;
        u.rows = static_cast<uint8_t>(it.expected.rows);
        u.weight_line = c.weight_line;
        u.first = c.first;
        u.merge = c.merge;
        u.bank_count = c.bank_count;
        u.has_bias = !(c.flags & LORA_FLAG_NO_BIAS);
        u.bias_bank = c.bias_bank & 63;
        u.bias_line = c.bias_line;
        u.x_bank = c.x_bank;
        u.x_line = c.x_offset / LORA_LINE_BYTES;
        u.x_stride = c.x_stride / LORA_LINE_BYTES;
        u.y_bank = c.y_bank;
        u.y_line = c.y_offset / LORA_LINE_BYTES;
        u.y_stride = c.y_stride / LORA_LINE_BYTES;
        u.y_single = c.y_type == LORA_FP32;
        u.eight_bit = kind == LORA_WEIGHT_INT8;
        u.four_bit = kind == LORA_WEIGHT_W4A8;
        u.group_log = u.four_bit ? (log - 5) & 3 : 0;
        u.row_scales = (c.flags & LORA_FLAG_ROW_SCALES) != 0;
    }

    void step() {
        VChannels &u = *unit_;
        size_t count = group_->commands.size();
        if (wait_ > 0) wait_--;
        if (start_wait_ > 0) start_wait_--;
        // as a sequencer does: told ahead, started in order, one after another or before
        u.announce_valid = told_ < count && wait_ == 0;
        if (u.announce_valid) give(group_->commands[told_]);
        u.start_valid = started_ < count && start_wait_ == 0;
        if (u.announce_valid || u.start_valid) u.eval();
        bool told = u.announce_valid && u.announce_ready, starts = u.start_valid && u.start_ready;
        if (u.result_valid) result();
        if (failed_) {
            u.announce_valid = u.start_valid = 0;
            cycle();
            return;
        }
        cycle();
        if (told) {
            told_++;
            counts["told_early"] += started_ > ended_;
            wait_ = timed_ ? 0 : random_.once_in(2) ? random_.below(3) : random_.below(800);
        }
        if (starts) {
            started_++;
            start_wait_ = timed_ ? 0 : random_.once_in(2) ? random_.below(3) : random_.below(800);
        }
        u.announce_valid = u.start_valid = 0;
    }

    void result() {
        VChannels &u = *unit_;
        if (ended_ >= started_) fail("group %zu: a result of nothing", number_);
        const Expected &e = group_->commands[ended_].expected;
        if (u.result_status == FAILED || u.result_status == REFUSED) {
            if (!answer_failed_ || u.result_status != plan_.fault)
                fail("group %zu, command %zu: status %u, though no line had such a fault", number_,
                     ended_, u.result_status);
            if (u.nonfinite_count != 0)
                fail("group %zu, command %zu: counts of a failed command", number_, ended_);
            failed_ = true;
            ended_++;
            counts[u.result_status == FAILED ? "failed" : "refused"]++;
            return;
        }
        if (u.result_status != e.status || u.nonfinite_count != e.nonfinite_count ||
            u.nonfinite_row != e.nonfinite_row)
            fail("group %zu, command %zu: status %u, %u values not finite from row %d on; expected "
                 "%u, %u, %d",
                 number_, ended_, u.result_status, u.nonfinite_count,
                 static_cast<int>(u.nonfinite_row), e.status, e.nonfinite_count,
                 static_cast<int>(e.nonfinite_row));
        counts["status_" + std::to_string(e.status)]++;
        counts["nonfinite"] += e.nonfinite_count != 0;
        ended_++;
    }

    uint8_t *place(uint32_t bank, uint32_t line) {
        auto found = banks_->find(bank);
        if (found == banks_->end() || (line + 1ull) * LORA_LINE_BYTES > found->second.size())
            return nullptr;
        return &found->second[size_t{line} * LORA_LINE_BYTES];
    }

    // What a port answers at `from`, into `data`; whether it failed.
    bool answer(const Request &it, uint32_t port, uint32_t *data) {
        const uint8_t *from = place(it.bank, it.line);
        if (!from)
            fail("group %zu: a read of bank %u, line %u, which is not there", number_, it.bank,
                 it.line);
        std::memcpy(data, from, LORA_LINE_BYTES);
        if (plan_.fail_at == 0 || port != plan_.fail_port || --plan_.fail_at != 0) return false;
        for (uint32_t i = 0; i < 16; i++) data[i] ^= static_cast<uint32_t>(random_.next());
        answer_failed_ = true;
        counts["failed_lines"]++;
        return true;
    }

    bool gives(Port &port) {
        if (!timed_) return chance(random_, gives_);
        port.credit += timed_;
        if (port.credit < 4) return false;
        return true;
    }
    void gave(Port &port) {
        if (timed_) port.credit -= 4;
    }

    // A cycle of all ports.
    void cycle() {
        VChannels &u = *unit_;
        u.answer_valid = 0;
        no_faults();
        uint32_t ready = 0, valid = 0, faults = 0;
        for (uint32_t c = 0; c < CHANNELS; c++) {
            Port &port = ports_[c];
            if (chance(random_, takes_)) ready |= 1u << c;
            bool can = gives(port);
            if (port.credit > 8) port.credit = 8;
            if (!can || port.under_way.empty() || port.under_way.front().due > cycles) continue;
            valid |= 1u << c;
            if (answer(port.under_way.front(), c, &u.answer_data[c][0])) faults |= 1u << c;
            port.under_way.pop_front();
            gave(port);
        }
        u.bank_ready = ready;
        u.answer_valid = valid;
        (plan_.fault == FAILED ? u.answer_failed : u.answer_refused) = faults;
        Port &shared = ports_[CHANNELS];
        u.read_ready = chance(random_, takes_);
        u.write_ready = chance(random_, writes_);
        u.line_valid = 0;
        bool can = gives(shared);
        if (shared.credit > 8) shared.credit = 8;
        if (can && !shared.under_way.empty()) { // in any order
            size_t at = timed_ ? 0 : random_.below(shared.under_way.size());
            Request it = shared.under_way[at];
            if (it.due <= cycles) {
                u.line_valid = 1;
                u.line_tag = static_cast<uint16_t>(it.tag);
                (plan_.fault == FAILED ? u.line_failed : u.line_refused) = answer(it, CHANNELS,
                                                                                  &u.line_data[0]);
                shared.under_way.erase(shared.under_way.begin() + static_cast<std::ptrdiff_t>(at));
                gave(shared);
            }
        }
        u.clk = 0;
        u.eval();
        for (uint32_t c = 0; c < CHANNELS; c++)
            if (u.bank_valid >> c & ready >> c & 1)
                ports_[c].under_way.push_back({cycles + late_, c, u.bank_line[c], 0});
        if (u.read_valid && u.read_ready)
            shared.under_way.push_back({cycles + late_, u.read_bank, u.read_line, u.read_tag});
        if (u.write_valid && u.write_ready) {
            uint8_t *to = place(u.write_bank, u.write_line);
            if (!to)
                fail("group %zu: a write of bank %u, line %u, which is not there", number_,
                     u.write_bank, u.write_line);
            for (uint32_t i = 0; i < LORA_LINE_BYTES; i++)
                if (u.write_bytes >> i & 1)
                    to[i] = reinterpret_cast<const uint8_t *>(&u.write_data[0])[i];
        }
        edge();
    }

    // --- bytes of rows ---------------------------------------------------------------------------
    template <class Each> void rows_of(size_t number, Each each) const {
        const Command &it = group_->commands[number];
        uint64_t bytes = uint64_t{it.fields.n} * (it.fields.y_type == LORA_FP32 ? 4 : 2);
        if (it.expected.status != DONE) return;
        for (uint32_t row = 0; row < it.expected.rows; row++)
            each(it.fields.y_bank, it.fields.y_offset + uint64_t{row} * it.fields.y_stride, bytes);
    }

    void rows_are_right(size_t number) {
        rows_of(number, [&](uint32_t bank, uint64_t begin, uint64_t bytes) {
            if (std::memcmp(&(*banks_)[bank][begin], &group_->wanted.at(bank)[begin], bytes) != 0)
                fail("group %zu: rows of command %zu, which ended before another failed", number_,
                     number);
        });
    }

    // Only rows of commands that were started may have changed, and each value is right or as it
    // was.
    void own_rows_alone() {
        Banks expected = group_->before;
        for (size_t i = 0; i < started_; i++)
            rows_of(i, [&](uint32_t bank, uint64_t begin, uint64_t bytes) {
                const std::vector<uint8_t> &wanted = group_->wanted.at(bank),
                                           &found = (*banks_)[bank];
                for (uint64_t at = begin; at < begin + bytes; at += 2)
                    if (std::memcmp(&found[at], &wanted[at], 2) == 0)
                        std::memcpy(&expected[bank][at], &wanted[at], 2);
            });
        if (expected != *banks_)
            fail("group %zu: other bytes than its rows', or wrong ones, behind an end", number_);
    }

    uint32_t timed_; // lines that a port gives in 4 cycles, 0 at random
    Random random_;
    VerilatedContext context_;
    std::unique_ptr<VChannels> unit_;
    Port ports_[CHANNELS + 1];
    size_t number_ = 0, told_ = 0, started_ = 0, ended_ = 0;
    const Group *group_ = nullptr;
    Banks *banks_ = nullptr;
    Plan plan_;
    bool failed_ = false, answer_failed_ = false;
    uint32_t wait_ = 0, start_wait_ = 0, takes_ = 0, gives_ = 0, late_ = 1, writes_ = 0;
};

} // namespace

int main(int count, char **arguments) {
    if (count < 3) return 2;
    std::ifstream file(arguments[1], std::ios::binary);
    uint32_t seed = static_cast<uint32_t>(std::stoul(arguments[2]));
    uint32_t timed = count > 4 && std::string(arguments[3]) == "timed"
                         ? static_cast<uint32_t>(std::stoul(arguments[4]))
                         : 0;
    Random random(seed);
    Bench bench(seed, timed, count, arguments);
    Group group;
    size_t number = 0;
    std::string took;
    for (; read_group(file, group); number++) {
        while (!timed && random.once_in(2)) {
            Plan plan;
            plan.until = 1 + random.below(uint64_t{1} << (3 + random.below(10)));
            plan.resets = random.once_in(4);
            if (random.once_in(2)) {
                plan = {};
                plan.fail_port = random.once_in(3) ? CHANNELS : random.below(CHANNELS);
                plan.fail_at = 1 + random.below(uint64_t{1} << random.below(9));
                plan.fault = random.once_in(2) ? FAILED : REFUSED;
            }
            Banks banks = group.before;
            if (bench.run(number, group, banks, plan) && banks != group.wanted)
                fail("group %zu: bytes differ, a line that is not needed has failed", number);
        }
        Banks banks = group.before;
        uint64_t begin = bench.cycles;
        if (!bench.run(number, group, banks, {})) fail("group %zu: failed", number);
        took += (took.empty() ? "" : ", ") + std::to_string(bench.cycles - begin);
        if (banks != group.wanted) {
            for (const auto &[bank, bytes] : group.wanted)
                for (size_t i = 0; i < bytes.size(); i++)
                    if (banks[bank][i] != bytes[i])
                        fail("group %zu: bytes differ, bank %u, byte %zu first", number, bank, i);
        }
    }
    std::string text = "{\"groups\": " + std::to_string(number) +
                       ", \"cycles\": " + std::to_string(bench.cycles);
    if (timed) text += ", \"took\": [" + took + "]";
    for (const auto &[name, found] : bench.counts)
        text += ", \"" + name + "\": " + std::to_string(found);
    std::printf("%s}\n", text.c_str());
    return 0;
}

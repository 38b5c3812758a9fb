// The arbiter of a memory port between random units and a memory that answers reads and takes
// writes in any order.
//   bench CYCLES SEED
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <verilated.h>

#include "VArbiter.h"
#include "random.hpp"

namespace {

constexpr uint32_t UNITS = 3, TAG_BITS = 16, WRITES = 32, LINES = 400, BANKS = 2,
                   PLACES = LINES * BANKS, BYTES = 64;

[[noreturn]] void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

using Line = std::array<uint8_t, BYTES>;

// Each byte counts the writes to it, so a line that is read says which of them were before.
class Bench {
  public:
    explicit Bench(uint32_t seed) : random_(seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        model_ = std::make_unique<VArbiter>(&context_);
        reset();
    }
    ~Bench() { model_->final(); }

    void run(uint64_t cycles) {
        for (uint64_t i = 0; i < cycles; i++) {
            if (i % 4000 == 0) {
                busy_ = random_.once_in(3) ? 0 : random_.below(240);
                rate_ = random_.once_in(3) ? 256 : 10 + random_.below(240);
                writes_of_8_ = random_.below(9);
                few_ = !random_.once_in(3);
            }
            if (random_.once_in(5000)) reset();
            cycle();
        }
        std::string text = "{";
        for (const auto &[name, count] : counts_)
            text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + std::to_string(count);
        std::printf("%s}\n", text.c_str());
    }

  private:
    struct Offer {
        bool valid = false;
        uint32_t place = 0, tag = 0, waited[UNITS] = {};
        uint64_t bytes = 0;
        Line data{};
    };
    struct Read { // of a unit, under way
        uint32_t place;
        Line least;
    };
    struct Taken { // by memory
        uint32_t place, tag;
    };
    struct Write {
        uint32_t unit, place, order;
        uint64_t bytes;
        Line data;
        bool taken = false;
    };

    void reset() {
        VArbiter &m = *model_;
        counts_["resets"]++;
        m.clk = 0;
        m.rst = 1;
        m.unit_read_valid = m.unit_write_valid = 0;
        m.line_valid = m.written = 0;
        m.read_ready = m.write_ready = random_.once_in(2);
        m.eval();
        edge();
        m.rst = 0;
        for (uint32_t u = 0; u < UNITS; u++)
            reads_[u].clear(), read_[u] = write_[u] = Offer(), open_[u] = 0;
        taken_.clear();
        waiting_.clear();
        for (auto &write : writes_) write.reset();
        shown_read_ = shown_write_ = false;
        std::memset(late_error_, 0, sizeof late_error_);
        std::memset(late_refused_, 0, sizeof late_refused_);
        answer_unit_ = UNITS;
        // writes that were under way may be in memory or not: begin anew
        for (uint32_t p = 0; p < PLACES; p++) accepted_[p] = memory_[p] = Line{};
    }

    void edge() {
        model_->clk = 1;
        model_->eval();
        model_->clk = 0;
        model_->eval();
    }

    // Of few lines, so that they meet, or of so many that all writes may be under way.
    uint32_t any_place() { return random_.below(BANKS) * LINES + random_.below(few_ ? 6 : LINES); }

    void offer() {
        VArbiter &m = *model_;
        for (uint32_t u = 0; u < UNITS; u++) {
            if (!read_[u].valid && random_.below(256) < rate_ && random_.below(8) >= writes_of_8_ &&
                reads_[u].size() < 12) {
                read_[u] = Offer();
                read_[u].valid = true;
                read_[u].place = any_place();
                do read_[u].tag = random_.below(64) << 10 | u;
                while (reads_[u].count(read_[u].tag));
            }
            if (!write_[u].valid && random_.below(256) < rate_ && random_.below(8) < writes_of_8_) {
                write_[u] = Offer();
                write_[u].valid = true;
                write_[u].place = any_place();
                write_[u].bytes = random_.once_in(2) ? ~0ull : random_.next();
            }
        }
        // two writes of one line in one cycle have no order: data is made when one is taken
        uint32_t reads = 0, writes = 0;
        uint64_t banks = 0, write_banks = 0;
        for (uint32_t u = 0; u < UNITS; u++) {
            reads |= uint32_t(read_[u].valid) << u;
            writes |= uint32_t(write_[u].valid) << u;
            banks |= uint64_t(read_[u].place / LINES) << 6 * u;
            write_banks |= uint64_t(write_[u].place / LINES) << 6 * u;
            m.unit_read_line[u] = read_[u].place % LINES;
            m.unit_write_line[u] = write_[u].place % LINES;
            reinterpret_cast<uint16_t *>(&m.unit_read_tag)[u] = static_cast<uint16_t>(read_[u].tag);
            std::memcpy(&m.unit_write_bytes[2 * u], &write_[u].bytes, 8);
            Line data = accepted_[write_[u].place];
            for (uint32_t b = 0; b < BYTES; b++)
                data[b] = static_cast<uint8_t>(write_[u].bytes >> b & 1 ? data[b] + 1
                                                                        : random_.next());
            write_[u].data = data;
            std::memcpy(&m.unit_write_data[16 * u], data.data(), BYTES);
        }
        m.unit_read_valid = static_cast<uint8_t>(reads);
        m.unit_write_valid = static_cast<uint8_t>(writes);
        m.unit_read_bank = static_cast<uint32_t>(banks);
        m.unit_write_bank = static_cast<uint32_t>(write_banks);
    }

    // In turns: while one waits, no other is served twice.
    void turn(Offer (&offers)[UNITS], uint32_t served) {
        for (uint32_t u = 0; u < UNITS; u++) {
            if (u == served || !offers[u].valid) continue;
            if (++offers[u].waited[served] > 1)
                fail("unit %u waits while %u is served again", u, served);
            counts_["waited"]++;
        }
    }

    void take_from_units() {
        VArbiter &m = *model_;
        int reader = -1, writer = -1;
        for (uint32_t u = 0; u < UNITS; u++) {
            if (m.unit_read_valid >> u & m.unit_read_ready >> u & 1) {
                if (reader >= 0) fail("two reads in one cycle");
                reader = static_cast<int>(u);
            }
            if (m.unit_write_valid >> u & m.unit_write_ready >> u & 1) {
                if (writer >= 0) fail("two writes in one cycle");
                writer = static_cast<int>(u);
            }
        }
        if (reader >= 0) { // sees all writes that were taken in cycles before
            Offer &offer = read_[reader];
            reads_[reader][offer.tag] = {offer.place, accepted_[offer.place]};
            offer.valid = false;
            turn(read_, static_cast<uint32_t>(reader));
            counts_["reads"]++;
        }
        if (writer >= 0) {
            Offer &offer = write_[writer];
            Line &line = accepted_[offer.place];
            for (uint32_t b = 0; b < BYTES; b++)
                if (offer.bytes >> b & 1) line[b] = offer.data[b];
            offer.valid = false;
            open_[writer]++;
            waiting_.push_back(
                {static_cast<uint32_t>(writer), offer.place, 0, offer.bytes, offer.data});
            turn(write_, static_cast<uint32_t>(writer));
            counts_["writes"]++;
        }
    }

    void take_by_memory() {
        VArbiter &m = *model_;
        if (m.read_valid && m.read_ready) {
            taken_.push_back({m.read_bank * LINES + m.read_line, m.read_tag});
            if (m.read_line >= LINES || m.read_bank >= BANKS) fail("a read of another line");
        }
        if (m.write_valid && m.write_ready) {
            auto &entry = writes_[m.write_id];
            if (entry) fail("the number of a write is in use");
            entry = std::make_unique<Write>();
            entry->place = m.write_bank * LINES + m.write_line;
            entry->bytes = m.write_bytes;
            std::memcpy(entry->data.data(), &m.write_data[0], BYTES);
            for (size_t i = 0;; i++) { // the oldest to this line
                if (i == waiting_.size()) fail("a write that no unit made, or before an older one");
                Write &from = waiting_[i];
                if (from.place != entry->place) continue;
                if (from.bytes != entry->bytes || differs(from.data, entry->data, from.bytes))
                    fail("another write comes first");
                entry->unit = from.unit;
                waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
                break;
            }
        }
        keep(shown_read_, m.read_valid && !m.read_ready, read_shown_,
             std::string(reinterpret_cast<const char *>(&m.read_tag), sizeof m.read_tag) +
                 std::to_string(m.read_bank) + "." + std::to_string(m.read_line),
             m.read_valid);
        keep(shown_write_, m.write_valid && !m.write_ready, write_shown_,
             std::string(reinterpret_cast<const char *>(&m.write_data[0]), BYTES) +
                 std::to_string(m.write_bytes) + "." + std::to_string(m.write_bank) + "." +
                 std::to_string(m.write_line) + "." + std::to_string(m.write_id),
             m.write_valid);
    }

    static bool differs(const Line &a, const Line &b, uint64_t bytes) {
        for (uint32_t i = 0; i < BYTES; i++)
            if (bytes >> i & 1 && a[i] != b[i]) return true;
        return false;
    }

    // What is on offer stays.
    void keep(bool &shown, bool left, std::string &before, const std::string &now, bool valid) {
        if (shown && (!valid || before != now))
            fail("an offer to memory changes before it is taken");
        shown = left;
        before = now;
    }

    // Before the edge: lines and ends of writes, in any order; what is written is there from now
    // on.
    void answer() {
        VArbiter &m = *model_;
        m.line_valid = !taken_.empty() && random_.once_in(2);
        m.line_tag = static_cast<uint32_t>(random_.next()) & ((1u << 18) - 1);
        m.line_refused = m.line_error = random_.once_in(2);
        if (m.line_valid) {
            size_t at = random_.below(taken_.size());
            std::memcpy(&m.line_data[0], memory_[taken_[at].place].data(), BYTES);
            m.line_tag = taken_[at].tag;
            m.line_refused = random_.once_in(20);
            m.line_error = random_.once_in(20);
            taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(at));
        }
        m.written = 0;
        m.written_id = static_cast<uint8_t>(random_.below(WRITES));
        m.written_refused = m.written_error = random_.once_in(2);
        uint32_t held = 0;
        for (const auto &write : writes_) held += write != nullptr;
        counts_["all_writes"] += held == WRITES;
        if (held == 0 || !random_.once_in(few_ ? 3 : 8)) return;
        while (!writes_[m.written_id]) m.written_id = (m.written_id + 1) % WRITES;
        auto &entry = writes_[m.written_id];
        m.written = 1;
        m.written_refused = random_.once_in(20);
        m.written_error = random_.once_in(20);
        for (uint32_t b = 0; b < BYTES; b++)
            if (entry->bytes >> b & 1) memory_[entry->place][b] = entry->data[b];
    }

    // What units see in this cycle: the answers of the cycle before.
    void see() {
        VArbiter &m = *model_;
        uint32_t expected = answer_unit_ < UNITS ? 1u << answer_unit_ : 0;
        if (m.unit_line_valid != expected)
            fail("a line for units %x, expected %x", m.unit_line_valid, expected);
        if (m.unit_line_refused != (answer_refused_ ? expected : 0) ||
            m.unit_line_error != (answer_error_ ? expected : 0))
            fail("errors of lines");
        counts_["line_errors"] += expected && (answer_refused_ || answer_error_);
        if (expected) {
            auto found = reads_[answer_unit_].find(m.unit_line_tag);
            if (found == reads_[answer_unit_].end())
                fail("a line that unit %u has not asked for", answer_unit_);
            const Line &least = found->second.least, &most = accepted_[found->second.place];
            const auto *data = reinterpret_cast<const uint8_t *>(&m.unit_line_data[0]);
            for (uint32_t b = 0; b < BYTES; b++)
                if (static_cast<uint8_t>(data[b] - least[b]) >
                    static_cast<uint8_t>(most[b] - least[b]))
                    fail("a read passes a write before it");
            if (std::memcmp(least.data(), most.data(), BYTES)) counts_["behind_writes"]++;
            reads_[answer_unit_].erase(found);
        }
        for (uint32_t u = 0; u < UNITS; u++) {
            if ((m.unit_write_open >> u & 1) != (open_[u] != 0)) fail("unit %u: open writes", u);
            if ((m.unit_write_refused >> u & 1) != late_refused_[u] ||
                (m.unit_write_error >> u & 1) != late_error_[u])
                fail("unit %u: errors of writes", u);
            counts_["write_errors"] += late_refused_[u] || late_error_[u];
        }
    }

    void cycle() {
        VArbiter &m = *model_;
        offer();
        m.read_ready = random_.below(256) >= busy_;
        m.write_ready = random_.below(256) >= busy_;
        answer();
        m.eval();
        see();
        counts_["lines_a_cycle"] += m.read_valid && m.read_ready && last_read_;
        last_read_ = m.read_valid && m.read_ready;
        take_by_memory();
        answer_unit_ = m.line_valid ? m.line_tag >> TAG_BITS : UNITS;
        answer_refused_ = m.line_refused, answer_error_ = m.line_error;
        std::memset(late_error_, 0, sizeof late_error_);
        std::memset(late_refused_, 0, sizeof late_refused_);
        if (m.written) {
            auto &entry = writes_[m.written_id];
            late_refused_[entry->unit] = m.written_refused;
            late_error_[entry->unit] = m.written_error;
            open_[entry->unit]--;
            entry.reset();
        }
        take_from_units();
        edge();
        counts_["cycles"]++;
    }

    Random random_;
    VerilatedContext context_{};
    std::unique_ptr<VArbiter> model_;
    std::map<std::string, uint64_t> counts_;
    uint32_t busy_ = 0, rate_ = 256, writes_of_8_ = 3;
    Offer read_[UNITS], write_[UNITS];
    std::map<uint32_t, Read> reads_[UNITS];
    uint32_t open_[UNITS] = {}, answer_unit_ = UNITS;
    bool answer_refused_ = false, answer_error_ = false, last_read_ = false;
    bool few_ = true, late_error_[UNITS] = {}, late_refused_[UNITS] = {}, shown_read_ = false,
         shown_write_ = false;
    std::string read_shown_, write_shown_;
    std::vector<Taken> taken_;
    std::vector<Write> waiting_;
    std::unique_ptr<Write> writes_[WRITES];
    Line accepted_[PLACES] = {}, memory_[PLACES] = {};
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("bench CYCLES SEED");
    Bench bench(static_cast<uint32_t>(std::stoul(arguments[2])));
    bench.run(std::stoull(arguments[1]));
    return 0;
}

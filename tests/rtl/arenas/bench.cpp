// Lines of banks that become addresses, beside a search through all arenas: every address, byte,
// refusal and error, with a memory that answers in any order.
//   bench CYCLES SEED
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <verilated.h>

#include "VArenas.h"
#include "lora/abi.h"
#include "random.hpp"
#include "records.hpp"

namespace {

constexpr uint32_t BYTES = LORA_LINE_BYTES, IDS = 32, TAGS = 64, SCENE = 3000, STREAM = 600,
                   LIMIT = 100'000;

[[noreturn]] void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

struct Read {
    Place place;
    bool taken = false, loose = false;
};
struct Write {
    Place place;
    uint64_t bytes;
    std::array<uint8_t, BYTES> data;
    bool taken = false, loose = false;
};
class Bench {
  public:
    explicit Bench(uint32_t seed) : random_(seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        model_ = std::make_unique<VArenas>(&context_);
        quiet();
        reset();
    }
    ~Bench() { model_->final(); }

    void run(uint64_t cycles) {
        while (counts_["cycles"] < cycles) {
            scene();
            if (random_.once_in(2)) stream();
            for (uint32_t i = 0; i < SCENE; i++) {
                if (random_.once_in(400)) add_arena();
                if (random_.once_in(2000)) reset();
                if (random_.once_in(50)) move_arena();
                if (i % 500 == 0) busy_ = random_.once_in(3) ? 0 : random_.below(240);
                cycle(random_.below(3), random_.below(3));
            }
            drain();
            if (random_.once_in(2)) stream();
        }
        std::string text = "{";
        for (const auto &[name, count] : counts_)
            text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + std::to_string(count);
        std::printf("%s}\n", text.c_str());
    }

  private:
    // --- arenas ------------------------------------------------------------------------------
    void host(uint32_t offset, uint32_t value) {
        model_->arena_write = 1;
        model_->arena_word = static_cast<uint16_t>(offset / 4);
        model_->arena_stored = value;
        cycle(0, 0);
        model_->arena_write = 0;
    }

    bool refused_under_way() const {
        if ((read_ && place(*read_).refused) || (write_ && place(*write_).refused)) return true;
        for (const auto &[tag, read] : reads_)
            if (read.place.refused) return true;
        for (const auto &[id, write] : writes_)
            if (write.place.refused) return true;
        return false;
    }

    // While lines of other arenas are under way.
    void tell(const lora_arena_record &record) {
        for (uint32_t i = 0; refused_under_way(); i++) {
            if (i > LIMIT) fail("a refusal is lost");
            cycle(0, 0);
        }
        uint32_t words[sizeof record / 4];
        std::memcpy(words, &record, sizeof record);
        uint32_t at = static_cast<uint32_t>(LORA_REG_ARENAS +
                                            records_.all().size() * sizeof record);
        for (uint32_t i = 0; i < sizeof record / 4; i++) host(at + 4 * i, words[i]);
        records_.add(record);
        host(LORA_REG_ARENA_COUNT, static_cast<uint32_t>(records_.all().size()));
    }

    // An arena lies elsewhere from now on; what is under way goes to either place.
    void move_arena() {
        uint32_t number = random_.below(records_.all().size());
        const lora_arena_record &record = records_.move(number);
        loose_ = true;
        for (auto &[tag, read] : reads_) read.loose = true;
        for (auto &[id, write] : writes_) write.loose = true;
        host(LORA_REG_ARENAS + number * uint32_t(sizeof record) + 4,
             static_cast<uint32_t>(record.base >> 32));
        loose_ = false;
        if (read_) read_ = any();
        if (write_) write_ = any();
        counts_["moved"]++;
    }

    void add_arena() {
        if (!records_.full()) tell(records_.next());
    }

    void scene() {
        host(LORA_REG_ARENA_COUNT, 0);
        records_.clear();
        onchip_lines_ = 16 + random_.below(64);
        model_->onchip_bytes = onchip_lines_ * BYTES;
        uint32_t count = 1 + random_.below(random_.once_in(4) ? 110 : 20);
        while (count--) add_arena();
    }

    Place place(const Where &it) const {
        if (it.bank == LORA_BANK_ONCHIP) return {it.line >= onchip_lines_, true, it.line};
        return records_.place(it);
    }

    // A line in an arena, at an edge of one, or anywhere.
    Where any() {
        if (random_.once_in(8))
            return {LORA_BANK_ONCHIP, random_.below(onchip_lines_ + random_.below(3))};
        if (random_.once_in(30)) return {random_.below(64), random_.next() % Records::BANK_LINES};
        return records_.any();
    }

    // --- cycles ------------------------------------------------------------------------------
    void quiet() {
        VArenas &m = *model_;
        m.clk = m.arena_write = m.read_valid = m.write_valid = 0;
        m.memory_line_valid = m.memory_written = m.memory_read_ready = m.memory_write_ready = 0;
        m.onchip_bytes = 0;
    }

    void edge() {
        model_->clk = 1;
        model_->eval();
        model_->clk = 0;
        model_->eval();
    }

    void reset() {
        VArenas &m = *model_;
        quiet();
        m.rst = 1;
        m.eval();
        edge();
        m.rst = 0;
        read_.reset(), write_.reset();
        reads_.clear(), writes_.clear();
        shown_read_ = shown_write_ = "";
        m.onchip_bytes = onchip_lines_ * BYTES;
        if (!records_.all().empty()) host(LORA_REG_ARENA_COUNT, uint32_t(records_.all().size()));
        counts_["resets"]++;
    }

    void offer(uint32_t read_rate, uint32_t write_rate) {
        VArenas &m = *model_;
        if (!read_ && random_.below(2) < read_rate && reads_.size() < TAGS) {
            read_ = next_ ? *next_ : any();
            do read_tag_ = random_.below(1 << 18);
            while (reads_.count(read_tag_));
        }
        if (!write_ && random_.below(2) < write_rate && writes_.size() < IDS) {
            write_ = next_ ? *next_ : any();
            do write_id_ = random_.below(IDS);
            while (writes_.count(write_id_));
            for (auto &byte : data_) byte = static_cast<uint8_t>(random_.next());
            bytes_ = random_.next();
        }
        m.read_valid = read_.has_value();
        m.read_bank = read_ ? read_->bank : random_.below(64);
        m.read_line = read_ ? uint32_t(read_->line) : uint32_t(random_.next());
        m.read_tag = read_tag_;
        m.write_valid = write_.has_value();
        m.write_bank = write_ ? write_->bank : random_.below(64);
        m.write_line = write_ ? uint32_t(write_->line) : uint32_t(random_.next());
        m.write_id = static_cast<uint8_t>(write_id_);
        m.write_bytes = bytes_;
        std::memcpy(&m.write_data[0], data_.data(), BYTES);
    }

    // What memory holds: its address, told apart from the on-chip buffer's.
    static uint64_t held(const Place &place) { return place.line << 1 | place.onchip; }

    // Memory's answers before the edge: of what it has taken, any.
    void answer() {
        VArenas &m = *model_;
        m.memory_line_valid = m.memory_written = 0;
        std::vector<uint32_t> tags, ids;
        for (auto &[tag, read] : reads_)
            if (read.taken) tags.push_back(tag);
        for (auto &[id, write] : writes_)
            if (write.taken) ids.push_back(id);
        m.memory_line_tag = random_.below(1 << 18);
        m.memory_line_error = m.memory_written_error = random_.once_in(2);
        if (!tags.empty() && random_.below(256) >= busy_) {
            m.memory_line_valid = 1;
            m.memory_line_tag = tags[random_.below(tags.size())];
            m.memory_line_error = random_.once_in(20);
            uint64_t value = held(reads_[m.memory_line_tag].place);
            for (uint32_t i = 0; i < BYTES / 8; i++)
                std::memcpy(&m.memory_line_data[2 * i], &value, 8);
        }
        if (!ids.empty() && random_.below(256) >= busy_) {
            m.memory_written = 1;
            m.memory_written_id = static_cast<uint8_t>(ids[random_.below(ids.size())]);
            m.memory_written_error = random_.once_in(20);
        }
    }

    void see_answers() {
        VArenas &m = *model_;
        if (m.memory_line_valid && !m.line_valid) fail("a line of memory is lost");
        if (m.line_valid) {
            auto found = reads_.find(m.line_tag);
            if (found == reads_.end()) fail("a line that nobody has asked for");
            Place &place = found->second.place;
            if (found->second.loose) place.refused = m.line_refused;
            if (m.line_refused != place.refused) fail("a read is refused, or is not");
            if (!place.refused) {
                uint64_t value;
                std::memcpy(&value, &m.line_data[0], 8);
                if (!m.memory_line_valid || value != held(place)) fail("the line of another place");
            }
            if (m.line_error != (m.memory_line_valid && m.memory_line_error))
                fail("errors of lines");
            counts_[place.refused ? "reads_refused" : place.onchip ? "reads_onchip" : "reads"]++;
            counts_["line_errors"] += m.line_error;
            reads_.erase(found);
        }
        if (m.memory_written && !m.written) fail("the end of a write is lost");
        if (!m.written) return;
        auto found = writes_.find(m.written_id);
        if (found == writes_.end()) fail("the end of a write that was none");
        Place &place = found->second.place;
        if (found->second.loose) place.refused = m.written_refused;
        if (m.written_refused != place.refused) fail("a write is refused, or is not");
        if (m.written_error != (m.memory_written && m.memory_written_error))
            fail("errors of writes");
        counts_[place.refused ? "writes_refused" : place.onchip ? "writes_onchip" : "writes"]++;
        counts_["write_errors"] += m.written_error;
        writes_.erase(found);
    }

    static std::string text(uint64_t a, uint64_t b, uint64_t c, const void *data) {
        return std::to_string(a) + "." + std::to_string(b) + "." + std::to_string(c) +
               std::string(static_cast<const char *>(data), BYTES);
    }

    void keep(std::string &shown, bool valid, bool taken, const std::string &now) {
        if (!shown.empty() && (!valid || shown != now)) fail("an offer to memory changes");
        shown = valid && !taken ? now : "";
    }

    void take_by_memory() {
        VArenas &m = *model_;
        bool reads = m.memory_read_valid && m.memory_read_ready;
        bool writes = m.memory_write_valid && m.memory_write_ready;
        if (reads) {
            auto found = reads_.find(m.memory_read_tag);
            Place place{false, bool(m.memory_read_onchip), m.memory_read_line};
            if (found != reads_.end() && found->second.loose) found->second.place = place;
            if (found == reads_.end() || !(found->second.place == place) || found->second.taken)
                fail("a read of another line");
            found->second.taken = true;
        }
        if (writes) {
            auto found = writes_.find(m.memory_write_id);
            Place place{false, bool(m.memory_write_onchip), m.memory_write_line};
            if (found != writes_.end() && found->second.loose) found->second.place = place;
            if (found == writes_.end() || !(found->second.place == place) || found->second.taken)
                fail("a write of another line");
            if (found->second.bytes != m.memory_write_bytes ||
                std::memcmp(found->second.data.data(), &m.memory_write_data[0], BYTES))
                fail("a write of other bytes");
            found->second.taken = true;
        }
        keep(shown_read_, m.memory_read_valid, reads,
             text(m.memory_read_line, m.memory_read_onchip, m.memory_read_tag, shown_nothing_));
        keep(shown_write_, m.memory_write_valid, writes,
             text(m.memory_write_line, m.memory_write_onchip,
                  m.memory_write_id + IDS * m.memory_write_bytes, &m.memory_write_data[0]));
    }

    void cycle(uint32_t read_rate, uint32_t write_rate) {
        VArenas &m = *model_;
        offer(read_rate, write_rate);
        m.memory_read_ready = random_.below(256) >= busy_;
        m.memory_write_ready = random_.below(256) >= busy_;
        answer();
        m.eval();
        see_answers();
        take_by_memory();
        read_waits_ = m.read_valid && !m.read_ready;
        write_waits_ = m.write_valid && !m.write_ready;
        if (read_ && m.read_ready)
            reads_[read_tag_] = {place(*read_), false, loose_}, read_.reset();
        if (write_ && m.write_ready)
            writes_[write_id_] = {place(*write_), bytes_, data_, false, loose_}, write_.reset();
        edge();
        counts_["cycles"]++;
    }

    void drain() {
        for (uint32_t i = 0; read_ || write_ || !reads_.empty() || !writes_.empty(); i++) {
            if (i > LIMIT) fail("a read or a write has no end");
            if (i % 100 == 0) busy_ = random_.below(200);
            cycle(0, 0);
        }
    }

    // Two arenas of each bank, looked up once: then a line a cycle both ways.
    void stream() {
        drain();
        busy_ = 0;
        std::map<uint32_t, std::vector<uint64_t>> lines;
        for (uint32_t i = 0; i < 400; i++) {
            Where it = any();
            auto &kept = lines[it.bank];
            if (!place(it).refused && kept.size() < 2) kept.push_back(it.line);
        }
        std::vector<Where> wheres;
        for (const auto &[bank, kept] : lines)
            for (uint64_t line : kept) wheres.push_back({bank, line});
        for (const Where &it : wheres) {
            next_ = it;
            for (bool read = true, write = true; read || write;) {
                cycle(read ? 2 : 0, write ? 2 : 0);
                read = read && read_, write = write && write_;
            }
            drain();
            busy_ = 0;
        }
        for (uint32_t i = 0; i < STREAM; i++) {
            next_ = wheres[random_.below(wheres.size())];
            cycle(2, 2);
            if (read_waits_ || write_waits_) fail("not a line a cycle");
            counts_["streamed"]++;
        }
        next_.reset();
        drain();
    }

    Random random_;
    VerilatedContext context_{};
    std::unique_ptr<VArenas> model_;
    std::map<std::string, uint64_t> counts_;
    Records records_{random_, {0, 1, 5, 31, 32, 62}};
    uint32_t onchip_lines_ = 16, busy_ = 0;
    std::optional<Where> read_, write_, next_;
    uint32_t read_tag_ = 0, write_id_ = 0;
    uint64_t bytes_ = 0;
    std::array<uint8_t, BYTES> data_{};
    std::map<uint32_t, Read> reads_;
    std::map<uint32_t, Write> writes_;
    bool read_waits_ = false, write_waits_ = false, loose_ = false;
    std::string shown_read_, shown_write_;
    const uint8_t shown_nothing_[BYTES] = {};
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("bench CYCLES SEED");
    Bench bench(static_cast<uint32_t>(std::stoul(arguments[2])));
    bench.run(std::stoull(arguments[1]));
    return 0;
}

// Readers of banks, beside a search through all arenas: every address, line, refusal and error,
// with a memory that answers in any order. With BANKS 1 a reader has one bank.
//   bench CYCLES SEED
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include <verilated.h>

#include "VBanks.h"
#include "records.hpp"

namespace {

constexpr uint32_t READERS = 3, TAGS = 64, SCENE = 3000, STREAM = 600, LIMIT = 100'000;
constexpr uint32_t OWN[READERS] = {0, 5, 31};

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

struct Read {
    Place place;
    bool taken = false, loose = false;
};

// A reader, what it offers and what is under way.
struct Reader {
    std::optional<Where> offered, next;
    uint32_t tag = 0;
    std::map<uint32_t, Read> reads;
    std::optional<uint64_t> shown; // to memory, not taken yet
    std::optional<uint32_t> held;  // the tag of a line that memory shows until it is taken
    uint64_t line = 0;
    bool waits = false, error = false;
    bool idle() const { return !offered && reads.empty(); }
};

class Bench {
  public:
    explicit Bench(uint32_t seed) : random_(seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        model_ = std::make_unique<VBanks>(&context_);
        reset();
    }
    ~Bench() { model_->final(); }

    void run(uint64_t cycles) {
        while (counts_["cycles"] < cycles) {
            scene();
            if (random_.once_in(2)) stream();
            for (uint32_t i = 0; i < SCENE; i++) {
                if (random_.once_in(400) && !records_.full()) tell(records_.next());
                if (random_.once_in(2000)) reset();
                if (random_.once_in(50)) move_arena();
                if (random_.once_in(500)) forget();
                if (i % 500 == 0) busy_ = random_.once_in(3) ? 0 : random_.below(240);
                cycle(random_.below(3));
            }
            drain();
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
        cycle(0);
        model_->arena_write = 0;
    }

    bool refused_under_way() const {
        for (const Reader &reader : readers_) {
            if (reader.offered && records_.place(*reader.offered).refused) return true;
            for (const auto &[tag, read] : reader.reads)
                if (read.place.refused) return true;
        }
        return false;
    }

    // While lines of other arenas are under way.
    void tell(const lora_arena_record &record) {
        for (uint32_t i = 0; refused_under_way(); i++) {
            if (i > LIMIT) fail("a refusal is lost");
            cycle(0);
        }
        uint32_t words[sizeof record / 4];
        std::memcpy(words, &record, sizeof record);
        auto number = static_cast<uint32_t>(records_.all().size());
        for (uint32_t i = 0; i < sizeof record / 4; i++)
            host(LORA_REG_ARENAS + number * uint32_t(sizeof record) + 4 * i, words[i]);
        records_.add(record);
        host(LORA_REG_ARENA_COUNT, number + 1);
    }

    // What is under way goes to either place.
    void move_arena() {
        uint32_t number = random_.below(records_.all().size());
        const lora_arena_record &record = records_.move(number);
        loose_ = true;
        for (Reader &reader : readers_)
            for (auto &[tag, read] : reader.reads) read.loose = true;
        host(LORA_REG_ARENAS + number * uint32_t(sizeof record) + 4,
             static_cast<uint32_t>(record.base >> 32));
        loose_ = false;
        counts_["moved"]++;
    }

    // One read, and no other.
    void read(uint32_t which, const Where &it) {
        drain();
        readers_[which].offered = it;
        readers_[which].tag = 0;
        drain();
    }
    // By all readers that have the bank.
    void read(const Where &it) {
        for (uint32_t i = 0; i < READERS; i++)
            if (BANKS != 1 || it.bank == OWN[i]) read(i, it);
    }

    // The last arena is none from now on, though a line of it was just read.
    void forget() {
        if (records_.all().size() < 2) return;
        const lora_arena_record last = records_.all().back();
        const Where it{last.bank % 64, last.offset / LORA_LINE_BYTES % Records::BANK_LINES};
        read(it);
        host(LORA_REG_ARENA_COUNT, static_cast<uint32_t>(records_.all().size()) - 1);
        records_.drop();
        read(it);
        counts_["forgotten"]++;
    }

    void scene() {
        host(LORA_REG_ARENA_COUNT, 0);
        records_.clear();
        uint32_t count = 1 + random_.below(random_.once_in(4) ? 110 : 20);
        while (count--) tell(records_.next());
    }

    // For a reader; where it has a bank, of that.
    Where any(uint32_t which) {
        if (random_.once_in(30))
            return {BANKS == 1 ? OWN[which] : random_.below(64),
                    random_.next() % Records::BANK_LINES};
        for (uint32_t i = 0; i < LIMIT; i++) {
            Where found = records_.any();
            if (BANKS != 1 || found.bank == OWN[which]) return found;
            if (random_.once_in(40)) return {OWN[which], found.line};
        }
        fail("no arena");
    }

    // --- cycles ------------------------------------------------------------------------------
    void edge() {
        model_->clk = 1;
        model_->eval();
        model_->clk = 0;
        model_->eval();
    }

    void reset() {
        VBanks &m = *model_;
        m.clk = m.arena_write = m.bank_read_valid = m.line_valid = m.read_ready = 0;
        m.rst = 1;
        m.eval();
        edge();
        m.rst = 0;
        for (Reader &reader : readers_) reader = {};
        if (!records_.all().empty()) host(LORA_REG_ARENA_COUNT, uint32_t(records_.all().size()));
        counts_["resets"]++;
    }

    void offer(uint32_t which, uint32_t rate) {
        Reader &reader = readers_[which];
        if (!reader.offered && random_.below(2) < rate && reader.reads.size() < TAGS) {
            reader.offered = reader.next ? *reader.next : any(which);
            do reader.tag = random_.below(TAGS);
            while (reader.reads.count(reader.tag));
        }
        model_->bank_read_bank[which] = static_cast<uint8_t>(reader.offered ? reader.offered->bank
                                                                            : random_.below(64));
        model_->bank_read_line[which] = static_cast<uint32_t>(reader.offered ? reader.offered->line
                                                                             : random_.next());
        model_->bank_read_tag[which] = static_cast<uint8_t>(reader.tag);
    }

    // Memory's answer before the edge: of what it has taken, any, until the reader takes it.
    void answer(uint32_t which) {
        VBanks &m = *model_;
        Reader &reader = readers_[which];
        std::vector<uint32_t> tags;
        for (auto &[tag, read] : reader.reads)
            if (read.taken) tags.push_back(tag);
        if (!reader.held && !tags.empty() && random_.below(256) >= busy_) {
            reader.held = tags[random_.below(tags.size())];
            reader.line = reader.reads[*reader.held].place.line;
            reader.error = random_.once_in(20);
        }
        m.line_tag[which] = static_cast<uint8_t>(reader.held.value_or(random_.below(TAGS)));
        uint64_t value = reader.held ? reader.line : random_.next();
        for (uint32_t i = 0; i < 8; i++) std::memcpy(&m.line_data[which][2 * i], &value, 8);
    }

    void see_answer(uint32_t which) {
        VBanks &m = *model_;
        Reader &reader = readers_[which];
        bool valid = m.bank_line_valid >> which & 1, ready = m.bank_line_ready >> which & 1;
        if (reader.held && !valid) fail("a line of memory is lost");
        if ((m.line_ready >> which & 1) != ready) fail("memory waits for another reader");
        if (!valid || !ready) return;
        auto found = reader.reads.find(m.bank_line_tag[which]);
        if (found == reader.reads.end()) fail("a line that nobody has asked for");
        Place &place = found->second.place;
        bool refused = m.bank_line_refused >> which & 1;
        if (refused != place.refused) fail("a read is refused, or is not");
        if (refused == reader.held.has_value()) fail("an answer of memory, or none");
        if (!refused) {
            if (found->first != *reader.held) fail("the line of another read");
            for (uint32_t i = 0; i < 16; i++)
                if (m.bank_line_data[which][i] != uint32_t(place.line >> 32 * (i & 1)))
                    fail("the line of another place");
        }
        bool error = m.bank_line_error >> which & 1;
        if (error != (reader.held && reader.error)) fail("errors of lines");
        counts_[refused ? "refused" : "reads"]++;
        counts_["errors"] += error;
        reader.reads.erase(found);
        reader.held.reset();
    }

    void take_by_memory(uint32_t which) {
        VBanks &m = *model_;
        Reader &reader = readers_[which];
        bool valid = m.read_valid >> which & 1, ready = m.read_ready >> which & 1;
        uint64_t now = m.read_line[which] << 6 | m.read_tag[which];
        if (reader.shown && (!valid || *reader.shown != now)) fail("an offer to memory changes");
        reader.shown.reset();
        if (valid && !ready) reader.shown = now;
        if (!valid || !ready) return;
        auto found = reader.reads.find(m.read_tag[which]);
        Place place{false, false, m.read_line[which]};
        if (found == reader.reads.end() || found->second.taken) fail("a read that was none");
        if (found->second.loose) found->second.place = place;
        if (!(found->second.place == place)) fail("a read of another line");
        found->second.taken = true;
    }

    void cycle(uint32_t rate) {
        VBanks &m = *model_;
        m.bank_read_valid = m.line_valid = m.line_error = 0;
        m.read_ready = m.bank_line_ready = 0;
        for (uint32_t i = 0; i < READERS; i++) {
            offer(i, rate);
            answer(i);
            const Reader &reader = readers_[i];
            m.bank_read_valid |= uint8_t(reader.offered.has_value() << i);
            m.line_valid |= uint8_t(reader.held.has_value() << i);
            m.line_error |= uint8_t((reader.held ? reader.error : random_.once_in(2)) << i);
            m.read_ready |= uint8_t((random_.below(256) >= busy_) << i);
            m.bank_line_ready |= uint8_t((random_.below(256) >= busy_) << i);
        }
        m.eval();
        for (uint32_t i = 0; i < READERS; i++) {
            see_answer(i);
            take_by_memory(i);
            Reader &reader = readers_[i];
            bool ready = m.bank_read_ready >> i & 1;
            reader.waits = reader.offered && !ready;
            if (!reader.offered || !ready) continue;
            reader.reads[reader.tag] = {records_.place(*reader.offered), false, loose_};
            reader.offered.reset();
        }
        edge();
        counts_["cycles"]++;
    }

    void drain() {
        auto busy = [this] {
            for (const Reader &reader : readers_)
                if (!reader.idle()) return true;
            return false;
        };
        for (uint32_t i = 0; busy(); i++) {
            if (i > LIMIT) fail("a read has no end");
            if (i % 100 == 0) busy_ = random_.below(200);
            cycle(0);
        }
    }

    // Lines of two arenas of a bank, looked up once: then a line a cycle and reader.
    void stream() {
        drain();
        std::vector<Where> wheres[READERS];
        for (uint32_t i = 0; i < READERS; i++)
            for (uint32_t tried = 0; tried < 400; tried++) {
                Where it = any(i);
                uint32_t same = 0;
                for (const Where &one : wheres[i]) same += one.bank == it.bank;
                if (same < 2 && !records_.place(it).refused) wheres[i].push_back(it);
            }
        for (uint32_t cycles = 0; cycles < 100; cycles++) cycle(2); // other arenas are kept
        for (uint32_t i = 0; i < READERS; i++)
            for (const Where &it : wheres[i]) read(i, it);
        busy_ = 0;
        for (uint32_t cycles = 0; cycles < STREAM; cycles++) {
            for (uint32_t i = 0; i < READERS; i++)
                if (!wheres[i].empty())
                    readers_[i].next = wheres[i][random_.below(wheres[i].size())];
            cycle(2);
            for (uint32_t i = 0; i < READERS; i++) {
                if (wheres[i].empty()) continue;
                if (readers_[i].waits) fail("not a line a cycle");
                counts_["streamed"]++;
            }
        }
        for (Reader &reader : readers_) reader.next.reset();
        drain();
    }

    Random random_;
    Records records_{random_, {OWN[0], OWN[1], OWN[2]}};
    VerilatedContext context_{};
    std::unique_ptr<VBanks> model_;
    std::map<std::string, uint64_t> counts_;
    Reader readers_[READERS];
    uint32_t busy_ = 0;
    bool loose_ = false;
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("bench CYCLES SEED");
    Bench bench(static_cast<uint32_t>(std::stoul(arguments[2])));
    bench.run(std::stoull(arguments[1]));
    return 0;
}

// A board's memory (card/board_memory.sv) between random units and control on one side and AXI4
// memory on the other: every line's bytes, tags, errors and numbers, AXI's rules, and how reads
// become bursts. Arguments: seed, lines.
#include "axi_ports.hpp"

#include "Vboard_memory.h"
#include <verilated.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>

namespace {
using Model = Vboard_memory;
enum : uint32_t {
    PORTS = 4,
    CONTROL = 2,
    CHANNELS = 2,
    ATTENTIONS = 4,
    KV_TAGS = 1 << 13,
    ONCHIP_LINES = 256,
    WRITES = 32,
    TAG_BITS = 20,
    MOST_UNDER_WAY = 300
};
enum : uint64_t { WINDOW = 0x100e00, WINDOW_LINES = 64 }; // lines of the control's words
enum : uint32_t { HOLD = 8, PIPELINE = 4 }; // cycles: of a burst that grows, and around it
constexpr uint64_t TOP = 1ull << 42;
const std::vector<BankRange> BANKS = {{0, 64 << 10},
                                      {0x400 * 64, 64 << 10},
                                      {0x100000ull * 64, 64 << 12},
                                      {(TOP - (1 << 14)) * 64, 64 << 14}};

struct Counts {
    uint64_t reads = 0, writes = 0, onchip = 0, unmapped = 0, failed = 0, failed_writes = 0,
             words = 0, chunks = 0, resets = 0, longest = 0, after_control = 0, cycles = 0,
             of_channels = 0, failed_of_channels = 0, of_pages = 0, failed_of_pages = 0,
             held_pages = 0, unmapped_pages = 0;
};

class Bench {
    struct Read {
        bool onchip, fails;
        Line line;
        uint64_t place;
        bool vague = false;
    };
    struct Chunk {
        uint64_t line;
        uint32_t beats, seen;
    };
    struct Write {
        bool onchip, fails;
        uint64_t line;
    };

  public:
    explicit Bench(uint32_t seed)
        : chance_(seed),
          ports_(
              model_, BANKS, CONTROL,
              [this](bool, uint64_t a, uint64_t s, Line &l) { return access(a, s, l); }, seed + 1) {
        Verilated::randSeed(int(seed) | 1);
        ports_.channels = CHANNELS;
        ports_.on_burst = [this](uint64_t first, uint32_t count) { held(first, count); };
    }

    void reset() {
        model_.rst = 1;
        model_.read_valid = model_.write_valid = model_.memory_valid = model_.ar_valid = 0;
        model_.channel_read_valid = model_.kv_read_valid = 0;
        ports_.quiet();
        for (uint32_t i = 0; i < 40; i++) clock();
        model_.rst = 0;
        reads_.clear();
        for (auto &[id, write] : writes_)
            if (write.onchip) known_onchip_.erase(write.line);
        writes_.clear();
        open_lines_.clear();
        waiting_.clear();
        chunks_.clear();
        owed_words_.clear();
        failed_.clear();
        for (auto &channel : channels_) channel = {};
        for (auto &unit : units_) unit = {};
        for (uint32_t i = 0; i < 40; i++) clock();
        // what was being written when the reset came may be there or not
        for (auto it = known_.begin(); it != known_.end();)
            it = onchip_of(it->first) ? ++it : known_.erase(it);
        known_.insert(stored_.begin(), stored_.end());
    }

    // Random traffic until so many lines have come.
    void run(uint64_t lines) {
        for (uint64_t end = counts.reads + lines; counts.reads < end;) {
            if (chance_() % 20000 == 0) {
                reset();
                counts.resets++;
            }
            if (chance_() % 500 == 0) {
                ports_.eager = chance_() % 3 == 0;
                ports_.takes = chance_() % 3 ? 1 + chance_() % 3 : 40;
                busy_ = 1 + chance_() % 8;
            }
            step();
        }
        drain();
    }

    // One stream of lines that follow each other, on memory that takes all at once: cycles.
    uint64_t stream(uint64_t first, uint32_t count) {
        ports_.eager = true;
        uint64_t before = counts.cycles, bursts = ports_.bursts;
        alone_ = true;
        for (uint32_t i = 0; i < count;) {
            offer_read(first + i, false);
            bool taken = model_.read_ready;
            clock();
            i += taken;
            model_.read_valid = 0;
        }
        drain();
        alone_ = false;
        stream_bursts = ports_.bursts - bursts;
        return counts.cycles - before;
    }

    // Cycles from a read of the on-chip buffer to its line, where nothing else is asked.
    uint64_t onchip_cycles() {
        alone_ = true;
        offer_read(5, true);
        while (!model_.read_ready) clock();
        clock();
        model_.read_valid = 0;
        uint64_t cycles = 1;
        for (; !model_.line_valid; cycles++) clock();
        drain();
        alone_ = false;
        return cycles;
    }

    // A line alone.
    void single(uint64_t line) { stream(line, 1); }

    Counts counts;
    uint64_t stream_bursts = 0;
    AxiPorts<Model> &ports() { return ports_; }

  private:
    [[noreturn]] static void fail(const char *why, uint64_t number = 0) {
        std::fprintf(stderr, "%s (%#llx)\n", why, (unsigned long long)number);
        std::exit(1);
    }

    static uint64_t key(bool onchip, uint64_t line) { return uint64_t(onchip) << 63 | line; }
    static bool onchip_of(uint64_t key) { return key >> 63; }
    static bool mapped(uint64_t line) {
        for (auto &bank : BANKS)
            if (line * 64 - bank.first < bank.bytes) return true;
        return false;
    }
    // Lines whose accesses fail.
    static bool bad(uint64_t line) { return line * 0x9e3779b97f4a7c15ull >> 59 == 3; }

    Line &at(std::map<uint64_t, Line> &from, uint64_t key) {
        auto found = from.find(key);
        if (found != from.end()) return found->second;
        Line line;
        for (uint32_t i = 0; i < 16; i++)
            line[i] = uint32_t((key * 16 + i) * 0x85ebca6bu) ^ uint32_t(key >> 20);
        return from[key] = line;
    }

    bool access(uint64_t address, uint64_t strobe, Line &line) {
        if (bad(address / 64)) return true;
        Line &there = at(stored_, address / 64);
        if (!strobe) line = there;
        else merge(there, strobe, line);
        return false;
    }

    static void merge(Line &there, uint64_t strobe, const Line &line) {
        auto *to = reinterpret_cast<uint8_t *>(there.data());
        auto *from = reinterpret_cast<const uint8_t *>(line.data());
        for (uint32_t i = 0; i < 64; i++)
            if (strobe >> i & 1) to[i] = from[i];
    }

    // --- what units ask ---
    uint64_t any_line() {
        if (left_ == 0 || chance_() % 64 == 0) {
            const auto &bank = BANKS[chance_() % PORTS];
            uint64_t lines = bank.bytes / 64, first = bank.first / 64;
            left_ = chance_() % 3 ? 1 + chance_() % 40 : 1;
            switch (chance_() % 4) {
            case 0:
                next_ = first + (chance_() % (lines / 64)) * 64 - chance_() % 4;
                break;                                             // at 4 KiB
            case 1: next_ = first + lines - chance_() % 20; break; // at the end of the bank
            default: next_ = first + chance_() % lines;
            }
            next_ %= TOP;
            if (chance_() % 40 == 0) next_ = 0x200000 + chance_() % 4096; // of no bank
        }
        left_--;
        return next_++ % TOP;
    }

    // The upper quarter of the control bank is the control's.
    static bool controls(uint64_t line) { return line - 0x100c00 < 0x400; }

    // The arbiter keeps accesses of a line apart.
    bool may_take(uint64_t place, bool held, uint64_t other) const {
        return !open_lines_.count(place) && !(held && other == place) && !controls(place);
    }

    void step() {
        model_.read_valid = model_.write_valid = 0;
        if (!held_read_ && chance_() % 8 < busy_) plan_read();
        if (held_read_) offer_read(read_line_, read_onchip_);
        if (!held_write_ && chance_() % 8 < busy_) plan_write();
        if (held_write_) {
            model_.write_valid = 1;
            model_.write_onchip = write_onchip_;
            model_.write_line = write_line_;
            model_.write_bytes = write_bytes_;
            model_.write_id = write_id_;
            for (uint32_t i = 0; i < 16; i++) model_.write_data[i] = write_data_[i];
        }
        ask_control();
        ask_channels();
        ask_pages();
        clock();
    }

    void plan_read() {
        if (reads_.size() >= MOST_UNDER_WAY) return;
        read_onchip_ = chance_() % 6 == 0;
        read_line_ = read_onchip_ ? chance_() % ONCHIP_LINES : any_line();
        bool just_now = written_at_ && counts.cycles - written_at_ < 4;
        if (chance_() % (just_now ? 2 : 30) == 0) { // what the control may have written
            read_onchip_ = false;
            read_line_ = just_now ? last_written_ : WINDOW + chance_() % WINDOW_LINES;
            held_read_ = true;
            return;
        }
        held_read_ = may_take(key(read_onchip_, read_line_), held_write_,
                              key(write_onchip_, write_line_));
    }

    void offer_read(uint64_t line, bool onchip) {
        held_read_ = true;
        read_line_ = line;
        read_onchip_ = onchip;
        while (reads_.count(tag_)) tag_ = (tag_ + 1) % (1u << TAG_BITS);
        model_.read_valid = 1;
        model_.read_onchip = onchip;
        model_.read_line = line;
        model_.read_tag = tag_;
        model_.eval();
    }

    void plan_write() {
        if (writes_.size() == WRITES) return;
        for (write_id_ = chance_() % WRITES; writes_.count(write_id_);)
            write_id_ = (write_id_ + 1) % WRITES;
        write_onchip_ = chance_() % 4 == 0;
        const auto &bank = BANKS[chance_() % PORTS];
        write_line_ = write_onchip_ ? chance_() % ONCHIP_LINES
                                    : (bank.first + chance_() % bank.bytes) / 64;
        if (!write_onchip_ && chance_() % 40 == 0) write_line_ = 0x200000 + chance_() % 4096;
        held_write_ = may_take(key(write_onchip_, write_line_), held_read_,
                               key(read_onchip_, read_line_));
        write_bytes_ = chance_() % 4 ? uint64_t(chance_()) << 32 | chance_() | 1 : ~0ull;
        for (uint32_t &word : write_data_) word = chance_();
    }

    // --- what channels ask: lines of their bank, a run each ---
    struct Channel {
        bool held = false;
        uint64_t line = 0, left = 0;
        std::deque<Read> reads;
    };

    void ask_channels() {
        model_.channel_read_valid = 0;
        for (uint32_t i = 0; i < CHANNELS; i++) {
            Channel &channel = channels_[i];
            if (!channel.held && chance_() % 8 < busy_) plan_channel(i, channel);
            model_.channel_read_valid |= uint32_t(channel.held) << i;
            model_.channel_read_line[i] = channel.line;
        }
    }

    void plan_channel(uint32_t i, Channel &channel) {
        if (channel.left) channel.line++, channel.left--;
        if (!channel.left) {
            channel.left = 1 + chance_() % 40;
            channel.line = BANKS[i].first / 64 + chance_() % (BANKS[i].bytes / 64 - channel.left);
        }
        channel.held = may_take(key(false, channel.line), held_write_,
                                key(write_onchip_, write_line_));
        if (channel.held) open_lines_.insert(key(false, channel.line));
    }

    void see_channels() {
        for (uint32_t i = 0; i < CHANNELS; i++) {
            Channel &channel = channels_[i];
            if (model_.channel_line_valid >> i & 1) {
                if (channel.reads.empty()) fail("a line that no channel waits for", i);
                const Read &read = channel.reads.front();
                if ((model_.channel_line_error >> i & 1) != read.fails)
                    fail("error of a channel's line", read.place);
                if (!read.fails &&
                    std::memcmp(&model_.channel_line_data[i][0], read.line.data(), 64))
                    fail("bytes of a channel's line", read.place);
                counts.of_channels++;
                counts.failed_of_channels += read.fails;
                open_lines_.erase(open_lines_.find(read.place));
                channel.reads.pop_front();
            }
            if (!(model_.channel_read_valid & model_.channel_read_ready & 1u << i)) continue;
            uint64_t place = key(false, channel.line);
            channel.reads.push_back({false, bad(channel.line), at(known_, place), place});
            channel.held = false;
        }
    }

    // --- what attention units ask: lines of channels' banks, answered by tags in any order ---
    struct Unit {
        bool held = false, here = false;
        uint64_t line = 0, left = 0;
        uint32_t tag = 0;
        std::map<uint32_t, Read> reads;
    };

    void ask_pages() {
        model_.kv_read_valid = 0;
        for (uint32_t i = 0; i < ATTENTIONS; i++) {
            Unit &unit = units_[i];
            if (!unit.held && chance_() % 8 < busy_) plan_page(unit);
            model_.kv_read_valid |= uint32_t(unit.held) << i;
            model_.kv_read_line[i] = unit.line;
            model_.kv_read_tag[i] = unit.tag;
        }
        model_.kv_line_ready = chance_() % 4 ? 15 : chance_() % 16;
    }

    void plan_page(Unit &unit) {
        if (unit.left) unit.line++, unit.left--;
        if (!unit.left) {
            const BankRange &bank = BANKS[chance_() % CHANNELS];
            unit.left = 1 + chance_() % 40;
            unit.line = bank.first / 64 + chance_() % (bank.bytes / 64 - unit.left);
            if (chance_() % 40 == 0) unit.line = 0x200000 + chance_() % 4096; // of no bank
        }
        unit.held = may_take(key(false, unit.line), held_write_, key(write_onchip_, write_line_));
        if (!unit.held) return;
        open_lines_.insert(key(false, unit.line));
        while (unit.reads.count(unit.tag)) unit.tag = chance_() % KV_TAGS;
    }

    void see_pages() {
        for (uint32_t i = 0; i < ATTENTIONS; i++) {
            Unit &unit = units_[i];
            if (unit.here && !(model_.kv_line_valid >> i & 1)) fail("a line that is withdrawn", i);
            unit.here = model_.kv_line_valid >> i & ~(model_.kv_line_ready >> i) & 1;
            counts.held_pages += unit.here;
            if (model_.kv_line_valid & model_.kv_line_ready & 1u << i) see_page(i, unit);
            if (!(model_.kv_read_valid & model_.kv_read_ready & 1u << i)) continue;
            uint64_t place = key(false, unit.line);
            bool fails = !mapped(unit.line) || bad(unit.line);
            counts.unmapped_pages += !mapped(unit.line);
            unit.reads[unit.tag] = {false, fails, at(known_, place), place};
            unit.held = false;
        }
    }

    void see_page(uint32_t i, Unit &unit) {
        auto found = unit.reads.find(model_.kv_line_tag[i]);
        if (found == unit.reads.end()) fail("a line that no attention unit waits for", i);
        const Read &read = found->second;
        if ((model_.kv_line_error >> i & 1) != read.fails) fail("error of a page", read.place);
        if (!read.fails && std::memcmp(&model_.kv_line_data[i][0], read.line.data(), 64))
            fail("bytes of a page", read.place);
        counts.of_pages++;
        counts.failed_of_pages += read.fails;
        open_lines_.erase(open_lines_.find(read.place));
        unit.reads.erase(found);
    }

    // --- what the control asks: chunks of lists, words of its window ---
    void ask_control() {
        if (!model_.ar_valid && chance_() % 16 == 0) {
            uint32_t place = chance_() % 64,
                     beats = 1 + chance_() % (64 - place < 16 ? 64 - place : 16);
            model_.ar_valid = 1;
            model_.ar_line = 0x100c00 + chance_() % 8 * 64 + place;
            model_.ar_beats = beats - 1;
        }
        if (!model_.memory_valid && chance_() % 16 == 0 && owed_words_.size() < 2) {
            model_.memory_valid = 1;
            bool again = held_read_ && read_line_ - WINDOW < WINDOW_LINES;
            uint64_t line = again ? read_line_ : WINDOW + chance_() % WINDOW_LINES;
            model_.memory_address = line * 64 + chance_() % 16 * 4;
            model_.memory_write = owed_words_.empty() && chance_() % 2
                                      ? 0xf
                                      : 0; // the core waits for a read
            model_.memory_stored = chance_();
        }
        model_.r_ready = chance_() % 4 != 0;
    }

    void see_control() {
        if (model_.memory_valid && model_.memory_ready) {
            uint64_t line = model_.memory_address / 64;
            uint32_t word = uint32_t(model_.memory_address / 4 % 16);
            asked_++;
            if (!model_.memory_write) owed_words_.push_back({model_.memory_address, asked_});
            else if (bad(line)) failed_[asked_] = true;
            else at(known_, line)[word] = model_.memory_stored;
            if (model_.memory_write) last_written_ = line, written_at_ = counts.cycles;
            if (model_.memory_write) // a unit's read before it has either
                for (auto &[tag, read] : reads_) read.vague |= read.place == line;
        }
        if (model_.ar_valid && model_.ar_ready)
            chunks_.push_back({model_.ar_line, model_.ar_beats + 1u, 0});
        if (model_.memory_answers) {
            if (owed_words_.empty()) fail("a word that was not asked for");
            auto [address, order] = owed_words_.front();
            owed_words_.pop_front();
            see_error(address, order);
            if (!model_.memory_error &&
                model_.memory_line[address / 4 % 16] != at(known_, address / 64)[address / 4 % 16])
                fail("bytes of a word", address);
            counts.words++;
        }
        if (model_.r_valid && model_.r_ready) see_chunk();
    }

    // A write that has failed makes the next read fail, which may be one that was asked for before
    // it.
    void see_error(uint64_t address, uint64_t order) {
        bool must = bad(address / 64), may = must || !failed_.empty();
        for (auto [write, surely] : failed_) must |= surely && write < order;
        if (model_.memory_error ? !may : must) fail("error of a word", address);
        if (!model_.memory_error) return;
        failed_.erase(failed_.begin(), failed_.lower_bound(order));
        for (auto &[write, surely] : failed_) surely = false;
    }

    void see_chunk() {
        if (chunks_.empty()) fail("a line of a list that was not asked for");
        Chunk &chunk = chunks_.front();
        uint64_t line = chunk.line + chunk.seen++;
        if (model_.r_last != (chunk.seen == chunk.beats)) fail("the end of a chunk", line);
        if (model_.r_error != bad(line)) fail("error of a list's line", line);
        if (!model_.r_error && std::memcmp(&model_.r_data[0], at(known_, line).data(), 64))
            fail("bytes of a list", line);
        if (chunk.seen == chunk.beats) {
            chunks_.pop_front();
            counts.chunks++;
        }
    }

    // --- an edge ---
    void clock() {
        model_.clk = 0;
        model_.eval();
        bool reads = model_.read_valid && model_.read_ready,
             writes = model_.write_valid && model_.write_ready;
        bool word = model_.memory_valid && model_.memory_ready,
             chunk = model_.ar_valid && model_.ar_ready;
        ports_.see(model_.rst);
        if (!model_.rst) see();
        counts.cycles++;
        model_.clk = 1;
        model_.eval();
        if (!model_.rst) ports_.drive();
        if (reads) model_.read_valid = 0, held_read_ = false;
        if (writes) model_.write_valid = 0, held_write_ = false;
        if (word) model_.memory_valid = 0;
        if (chunk) model_.ar_valid = 0;
        if (std::string broken = ports_.broken(); !broken.empty()) fail(broken.c_str());
    }

    void see() {
        if (model_.line_valid) see_line();
        if (model_.written) see_written();
        see_control();
        see_channels();
        see_pages();
        if (model_.read_valid && model_.read_ready) read_taken();
        if (model_.write_valid && model_.write_ready) write_taken();
    }

    void read_taken() {
        bool onchip = model_.read_onchip,
             fails = !onchip && (!mapped(read_line_) || bad(read_line_));
        uint64_t place = key(onchip, read_line_);
        reads_[tag_] = {onchip, fails, at(known_, place), place};
        counts.after_control += known_control(place);
        open_lines_.insert(place);
        counts.onchip += onchip;
        counts.unmapped += !onchip && !mapped(read_line_);
        if (!onchip && mapped(read_line_)) waiting_[read_line_].push_back(counts.cycles);
        tag_ = chance_() % (1u << TAG_BITS);
    }

    // Whether the control wrote that line just now.
    bool known_control(uint64_t place) {
        return place == last_written_ && counts.cycles - written_at_ < 20;
    }

    void see_line() {
        auto found = reads_.find(model_.line_tag);
        if (found == reads_.end()) fail("a tag that nobody waits for", model_.line_tag);
        const Read &read = found->second;
        if (model_.line_error != read.fails) fail("error of a line", read.place);
        bool known = !read.onchip || known_onchip_.count(read.place);
        if (!read.fails && known && !read.vague &&
            std::memcmp(&model_.line_data[0], read.line.data(), 64))
            fail("bytes of a line", read.place);
        counts.failed += read.fails;
        counts.reads++;
        open_lines_.erase(open_lines_.find(read.place));
        reads_.erase(found);
    }

    void write_taken() {
        uint64_t place = key(write_onchip_, write_line_);
        bool fails = !write_onchip_ && (!mapped(write_line_) || bad(write_line_));
        writes_[write_id_] = {write_onchip_, fails, place};
        open_lines_.insert(place);
        if (fails) return;
        merge(at(known_, place), write_bytes_, write_data_);
        if (write_onchip_ && write_bytes_ == ~0ull) known_onchip_.insert(place);
    }

    void see_written() {
        auto found = writes_.find(model_.written_id);
        if (found == writes_.end()) fail("a write that nobody waits for", model_.written_id);
        if (model_.written_error != found->second.fails)
            fail("error of a write", found->second.line);
        counts.failed_writes += found->second.fails;
        counts.writes++;
        open_lines_.erase(open_lines_.find(found->second.line));
        writes_.erase(found);
    }

    // A burst that memory has taken: how long its lines were held where nothing but the port held
    // them.
    void held(uint64_t address, uint32_t count) {
        for (uint32_t i = 0; i < count; i++) {
            auto &since = waiting_[address / 64 + i];
            if (since.empty()) fail("a line that was not asked for", address);
            uint64_t cycles = counts.cycles - since.front();
            if (alone_ && cycles > HOLD + PIPELINE) fail("a line is held for too long", cycles);
            if (alone_ && cycles > counts.longest) counts.longest = cycles;
            since.pop_front();
        }
    }

    void drain() {
        held_read_ = held_write_ = false;
        model_.kv_line_ready = 15;
        auto waits = [this] {
            auto has = [](const auto &one) { return one.held || !one.reads.empty(); };
            return std::any_of(channels_.begin(), channels_.end(), has) ||
                   std::any_of(units_.begin(), units_.end(), has);
        };
        for (uint32_t i = 0;
             waits() || !reads_.empty() || !writes_.empty() || !owed_words_.empty() ||
             !chunks_.empty() || model_.memory_valid || model_.ar_valid;
             i++) {
            if (i == 20000) fail("an answer does not come");
            model_.read_valid = model_.write_valid = 0;
            model_.r_ready = 1;
            model_.channel_read_valid = model_.kv_read_valid = 0; // what was on offer stays
            for (uint32_t u = 0; u < CHANNELS; u++)
                model_.channel_read_valid |= uint32_t(channels_[u].held) << u;
            for (uint32_t u = 0; u < ATTENTIONS; u++)
                model_.kv_read_valid |= uint32_t(units_[u].held) << u;
            clock();
        }
    }

    std::mt19937 chance_;
    Model model_;
    std::map<uint64_t, Line> stored_, known_; // in memory, and when all writes are done
    std::set<uint64_t> known_onchip_;
    AxiPorts<Model> ports_;
    std::map<uint32_t, Read> reads_;
    std::map<uint32_t, Write> writes_;
    std::multiset<uint64_t> open_lines_;
    std::map<uint64_t, std::deque<uint64_t>> waiting_;
    std::deque<Chunk> chunks_;
    std::array<Channel, CHANNELS> channels_;
    std::array<Unit, ATTENTIONS> units_;
    std::deque<std::pair<uint64_t, uint64_t>> owed_words_; // address, order
    uint32_t busy_ = 4, tag_ = 0, left_ = 0, write_id_ = 0;
    uint64_t next_ = 0, read_line_ = 0, write_line_ = 0, write_bytes_ = 0;
    Line write_data_{};
    bool held_read_ = false, held_write_ = false, read_onchip_ = false, write_onchip_ = false,
         alone_ = false;
    uint64_t asked_ = 0, last_written_ = 0, written_at_ = 0;
    std::map<uint64_t, bool>
        failed_; // writes of the control, by order: whether no read has told it
};
} // namespace

int main(int, char **given) {
    Verilated::randReset(2);
    uint32_t seed = uint32_t(std::atoi(given[1]));
    Bench bench(seed);
    bench.reset();
    bench.run(std::strtoull(given[2], nullptr, 0));
    const auto &ports = bench.ports();
    Counts c = bench.counts;
    std::printf(
        "{\"lines\": %lu, \"writes\": %lu, \"onchip\": %lu, \"unmapped\": %lu, \"failed\": %lu, "
        "\"failed_writes\": %lu, \"words\": %lu, \"chunks\": %lu, \"resets\": %lu, \"bursts\": "
        "%lu, "
        "\"burst_lines\": %lu, \"full\": %lu, \"ends_page\": %lu, \"after_control\": %lu, "
        "\"of_channels\": %lu, \"failed_of_channels\": %lu, \"of_pages\": %lu, "
        "\"failed_of_pages\": %lu, \"held_pages\": %lu, \"unmapped_pages\": %lu, ",
        c.reads, c.writes, c.onchip, c.unmapped, c.failed, c.failed_writes, c.words, c.chunks,
        c.resets, ports.bursts, ports.lines, ports.full, ports.ends_page, c.after_control,
        c.of_channels, c.failed_of_channels, c.of_pages, c.failed_of_pages, c.held_pages,
        c.unmapped_pages);
    uint64_t cycles = bench.stream(0x100000, 1024);
    std::printf("\"stream\": %lu, \"stream_bursts\": %lu, ", cycles, bench.stream_bursts);
    std::printf("\"onchip_cycles\": %lu, ", bench.onchip_cycles());
    for (uint32_t i = 0; i < 100; i++) bench.single(0x400 + 37 * i % 1000);
    std::printf("\"longest\": %lu}\n", bench.counts.longest);
    return 0;
}

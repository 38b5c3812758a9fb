// Each cell of overlays/rtl/crossing between two unrelated clocks: no word is lost, doubled, torn
// or out of order. A reset of either side may lose words; it does nothing else. cells --words N
// --seed N --a HALF --b HALF [--resets]
#include "Vcells_bench.h"
#include "clocks.hpp"
#include "verilated.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

namespace {

enum : uint32_t { PULSE, WORD, SHALLOW, DEEP, STREAMS };
const char *const NAMES[STREAMS] = {"pulse_cross", "word_cross", "async_fifo of 4",
                                    "async_fifo of 16"};

struct Options {
    uint64_t words = 2000, seed = 1, a = 1000, b = 1370;
    bool resets = false;
};

[[noreturn]] void fail(const char *who, const char *what, uint64_t number) {
    printf("%s: %s, word %llu\n", who, what, static_cast<unsigned long long>(number));
    exit(1);
}

uint32_t word_of(uint64_t number, uint32_t part) {
    uint64_t mixed = (number * 4 + part + 1) * 0x9e3779b97f4a7c15;
    return part == 0 ? uint32_t(number) : uint32_t(mixed >> 29);
}

// What went in and has not come out.
class Stream {
  public:
    const char *name = "";
    uint64_t given = 0, received = 0, lost = 0;

    void gives() { flight_.push_back(given++); }

    // Words that a reset has lost are passed over; `may_lose`: there was one.
    void receives(const uint32_t *word, bool may_lose) {
        if (flight_.empty()) fail(name, "came twice or was never given", received);
        if (word && may_lose)
            while (flight_.size() > 1 && word[0] != uint32_t(flight_.front())) lose();
        uint64_t number = flight_.front();
        for (uint32_t part = 0; word && part < 4; part++)
            if (word[part] != word_of(number, part)) fail(name, "is torn or not in order", number);
        flight_.pop_front();
        received++;
    }

    void lose() {
        flight_.pop_front();
        lost++;
    }

    size_t in_flight() const { return flight_.size(); }

  private:
    std::deque<uint64_t> flight_;
};

class Bench {
  public:
    explicit Bench(const Options &options)
        : options_(options), chance_(static_cast<uint32_t>(options.seed)),
          clocks_(static_cast<uint32_t>(options.seed)) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(options.seed & 0x7fffffff) | 1);
        metastable::seed(static_cast<uint32_t>(options.seed));
        metastable::window = (options.a < options.b ? options.a : options.b) / 2;
        bench_ = std::make_unique<Vcells_bench>(&context_);
        clocks_.add(options.a);
        clocks_.add(options.b);
        for (uint32_t i = 0; i < STREAMS; i++) streams_[i].name = NAMES[i];
        bench_->a_clk = bench_->b_clk = 0;
        bench_->bit_d = bench_->reset_d = 0;
        bench_->in_valid = bench_->out_ready = 0;
        bench_->a_rst = bench_->b_rst = 1;
        bench_->eval();
        edges(200);
        bench_->a_rst = bench_->b_rst = 0;
    }

    void run() {
        quiet();
        for (uint64_t end = options_.words; !over(end);) edge(true);
        quiet();
        for (Stream &stream : streams_)
            if (stream.in_flight()) fail(stream.name, "is lost", stream.received + stream.lost);
        if (!metastable::torn) fail("model", "no bit changed near an edge", 0);
        if (!bits_ || !resets_) fail("bit_sync", "nothing crossed", bits_);
        printf("{\"given\": [%llu, %llu, %llu, %llu], \"lost\": %llu, \"bits\": %llu, "
               "\"unsure\": %llu, \"resets\": %llu}\n",
               number(streams_[0].given), number(streams_[1].given), number(streams_[2].given),
               number(streams_[3].given), number(lost()), number(bits_), number(metastable::torn),
               number(side_resets_));
    }

  private:
    static unsigned long long number(uint64_t value) { return value; }

    bool over(uint64_t words) const {
        for (const Stream &stream : streams_)
            if (stream.received < words) return false;
        return true;
    }

    uint64_t lost() const {
        uint64_t sum = 0;
        for (const Stream &stream : streams_) sum += stream.lost;
        return sum;
    }

    void edges(uint32_t count) {
        while (count--) edge(false);
    }

    // No side is reset, nothing is given, all is taken.
    void quiet() {
        bench_->a_rst = bench_->b_rst = 0;
        bool resets = options_.resets;
        options_.resets = false;
        gives_ = false;
        for (uint32_t i = 0; i < 2000; i++) edge(true);
        gives_ = true;
        options_.resets = resets;
        if (reset_recently_)
            for (Stream &stream : streams_)
                while (stream.in_flight()) stream.lose();
        reset_recently_ = false;
    }

    void edge(bool acts) {
        uint32_t clock = clocks_.next();
        bool rises = clocks_.level(clock);
        if (rises && acts) clock == 0 ? before_a() : before_b();
        (clock == 0 ? bench_->a_clk : bench_->b_clk) = rises;
        bench_->eval();
        if (rises && acts) clock == 0 ? after_a() : after_b();
        bench_->eval();
    }

    void before_a() {
        for (uint32_t i = 0; i < STREAMS; i++)
            if (bench_->in_valid >> i & bench_->in_ready >> i & 1) streams_[i].gives();
    }

    void after_a() {
        side_reset(bench_->a_rst);
        uint32_t valid = 0;
        for (uint32_t i = 0; i < STREAMS; i++) {
            bool more = gives_ && streams_[i].given < options_.words * 4 && chance_() % 4 != 0;
            valid |= uint32_t(more) << i;
            for (uint32_t part = 0; part < 4; part++)
                bench_->in_word[i][part] = word_of(streams_[i].given, part);
        }
        bench_->in_valid = static_cast<uint8_t>(valid);
        level();
        request();
    }

    // A level is held until it must have been seen.
    void level() {
        if (++level_cycles_ * options_.a < 12 * (options_.a + options_.b)) return;
        if (bench_->bit_q != bench_->bit_d) fail("bit_sync", "did not follow", bits_);
        bench_->bit_d = !bench_->bit_d;
        level_cycles_ = 0;
        bits_++;
    }

    void request() {
        reset_cycles_++;
        if (bench_->reset_d) {
            bench_->reset_d = 0;
            reset_cycles_ = 0;
        } else if (reset_cycles_ * options_.a > 12 * (options_.a + options_.b)) {
            if (bench_->reset_q) fail("reset_sync", "did not end", resets_);
            if (resets_ != requests_) fail("reset_sync", "a request was missed", requests_);
            bench_->reset_d = 1;
            requests_++;
        }
    }

    void before_b() {
        for (uint32_t i = 0; i < STREAMS; i++)
            if (bench_->out_valid >> i & (i == PULSE ? 1 : bench_->out_ready >> i) & 1)
                streams_[i].receives(i == PULSE ? nullptr : &bench_->out_word[i][0],
                                     reset_recently_);
    }

    void after_b() {
        side_reset(bench_->b_rst);
        if (bench_->bit_q != bit_before_ && ++bit_changes_ > bits_)
            fail("bit_sync", "changed by itself", bits_);
        bit_before_ = bench_->bit_q;
        if (bench_->reset_q && !reset_before_) resets_++;
        reset_before_ = bench_->reset_q;
        if (chance_() % 512 == 0) stalls_ = chance_() % 100;
        if (stalls_) stalls_--;
        bench_->out_ready = stalls_ ? 0 : static_cast<uint8_t>(chance_() & 0xf);
    }

    void side_reset(CData &rst) {
        if (!options_.resets) return;
        if (!rst && chance_() % 700 == 0) {
            rst = 1;
            side_resets_++;
            reset_recently_ = true;
        } else if (rst && chance_() % 4 == 0) {
            rst = 0;
        }
    }

    Options options_;
    std::mt19937 chance_;
    Clocks clocks_;
    VerilatedContext context_;
    std::unique_ptr<Vcells_bench> bench_;
    Stream streams_[STREAMS];
    bool gives_ = false, reset_recently_ = false, bit_before_ = false, reset_before_ = false;
    uint64_t level_cycles_ = 0, reset_cycles_ = 0, bits_ = 0, bit_changes_ = 0, resets_ = 0;
    uint64_t requests_ = 0, side_resets_ = 0;
    uint32_t stalls_ = 0;
};

Options parse(int count, char **values) {
    Options options;
    for (int i = 1; i < count; i++) {
        auto number = [&] { return i + 1 < count ? strtoull(values[++i], nullptr, 0) : 0; };
        if (!strcmp(values[i], "--words")) options.words = number();
        else if (!strcmp(values[i], "--seed")) options.seed = number();
        else if (!strcmp(values[i], "--a")) options.a = number();
        else if (!strcmp(values[i], "--b")) options.b = number();
        else if (!strcmp(values[i], "--resets")) options.resets = true;
        else fail("cells", "unknown option", i);
    }
    return options;
}

} // namespace

int main(int count, char **values) { Bench(parse(count, values)).run(); }

// Random frames through both width converters: the bytes of each frame, the halves' rules, and the
// rate where nobody waits. widths SEED FRAMES
#include "Vwidths_bench.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <vector>
#include <verilated.h>

using Frame = std::vector<uint8_t>;

namespace {
Vwidths_bench bench;
std::mt19937 chance;

[[noreturn]] void fail(const char *why) {
    std::printf("%s\n", why);
    std::exit(1);
}

// A stream that is watched: offers stay, words are full but a frame's last.
struct Watch {
    uint32_t bytes;
    bool waits = false;
    std::string offered;
    Frame frame{};
    std::deque<Frame> frames{};
    uint64_t words = 0;

    void see(bool valid, bool ready, const uint32_t *data, uint64_t keep, bool last) {
        std::string now(reinterpret_cast<const char *>(data), bytes);
        now += std::to_string(keep) + (last ? "l" : "");
        if (waits && (!valid || now != offered)) fail("an offer changed before it was taken");
        waits = valid && !ready;
        offered = now;
        if (!valid || !ready) return;
        uint32_t count = 0;
        while (count < bytes && keep >> count & 1) count++;
        if (count == 0 || (count < 64 && keep >> count) || (!last && count < bytes))
            fail("a word is not full, or has holes");
        for (uint32_t i = 0; i < count; i++) frame.push_back(data[i / 4] >> 8 * (i % 4));
        words++;
        if (!last) return;
        frames.push_back(frame);
        frame.clear();
    }
};

struct Source {
    Frame frame{};
    size_t at = 0;
    bool offers = false;

    void offer(uint32_t gaps) {
        if (offers || at == frame.size() || (gaps && chance() % gaps == 0)) return;
        size_t count = std::min<size_t>(64, frame.size() - at);
        for (uint32_t i = 0; i < 16; i++) bench.in_data[i] = static_cast<uint32_t>(chance());
        for (size_t i = 0; i < count; i++) {
            uint32_t &word = bench.in_data[i / 4];
            word = (word & ~(0xffu << 8 * (i % 4))) | uint32_t(frame[at + i]) << 8 * (i % 4);
        }
        bench.in_keep = count == 64 ? ~0ull : (1ull << count) - 1;
        bench.in_last = at + count == frame.size();
        offers = true;
    }
    void taken() {
        at = std::min(frame.size(), at + 64);
        offers = false;
    }
};
} // namespace

int main(int count, char **arguments) {
    if (count != 3) return 2;
    chance.seed(static_cast<uint32_t>(std::atoi(arguments[1])));
    Verilated::randReset(2);
    Verilated::randSeed(std::atoi(arguments[1]) + 1);
    const int frames = std::atoi(arguments[2]);
    Watch halves{32}, wholes{64};
    std::deque<Frame> given;
    Source source;
    uint64_t cycles = 0, waits = 0;
    bench.rst = 1;
    for (int made = 0, done = 0; done < frames; cycles++) {
        uint32_t gaps = made < frames / 4 ? 0 : 2 + chance() % 6; // the first ones without
        if (source.at == source.frame.size() && made < frames && !source.offers) {
            source.frame.resize(1 + chance() % (chance() % 2 ? 400 : 70));
            for (auto &byte : source.frame) byte = static_cast<uint8_t>(chance());
            source.at = 0;
            given.push_back(source.frame);
            made++;
        }
        bench.rst = cycles < 2;
        if (!bench.rst) source.offer(gaps);
        bench.in_valid = source.offers;
        bench.out_ready = !gaps || chance() % gaps;
        bench.pass = halves.waits || !gaps || chance() % gaps;
        bench.eval();
        if (!bench.rst) {
            halves.see(bench.half_valid, bench.half_ready, bench.half_data, bench.half_keep,
                       bench.half_last);
            wholes.see(bench.out_valid, bench.out_ready, bench.out_data, bench.out_keep,
                       bench.out_last);
            if (!gaps && cycles > 4 && !bench.half_valid) waits++;
            if (bench.in_valid && bench.in_ready) source.taken();
        }
        for (; !wholes.frames.empty(); done++) {
            if (given.front() != wholes.frames.front()) fail("a frame has other bytes");
            if (halves.frames.empty() || halves.frames.front() != given.front())
                fail("a frame of halves has other bytes");
            given.pop_front();
            wholes.frames.pop_front();
            halves.frames.pop_front();
        }
        bench.clk = 1;
        bench.eval();
        bench.clk = 0;
        bench.eval();
        if (cycles > 1000ull * frames + 10000) fail("the end does not come");
    }
    std::printf("{\"frames\": %d, \"halves\": %llu, \"wholes\": %llu, \"waits\": %llu}\n", frames,
                (unsigned long long)halves.words, (unsigned long long)wholes.words,
                (unsigned long long)waits);
    return 0;
}

// A chain's sums against integer arithmetic, operands every cycle or not: all pairs of extreme
// values of 4 and of 8 bits in all taps, then random ones. Enables follow each other as the array
// gives them. chain SEED LINES
#include "Vdot_dsp48.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <verilated.h>

namespace {
// Two columns' weights, packed, and what they are less of.
int32_t joined(int high, int low) { return (high * (1 << 18) + low) & 0x7ffffff; }

struct Line {
    bool valid = false, clear = false;
    std::array<int, 4> d{}, x{};
    int a = 0;
    int64_t low = 0, high = 0; // sums of the columns
};

class Checked {
  public:
    explicit Checked(int seed) { Verilated::randReset(2), Verilated::randSeed(seed); }

    // One cycle: these operands go in; the sum is that of the last line that was taken two cycles
    // ago.
    void step(const Line &line) {
        for (int i = 0; i < 4; i++) chain_.d[i] = line.d[i], chain_.x[i] = line.x[i] & 0xff;
        chain_.a = line.a;
        chain_.enable = line.valid;
        chain_.enable_1 = before_[0].valid;
        chain_.enable_2 = before_[1].valid;
        chain_.clear = line.clear;
        chain_.clk = 0;
        chain_.eval();
        chain_.clk = 1;
        chain_.eval();
        if (before_[1].valid) last_ = before_[1], seen_ = true;
        if (line.clear) last_ = {}, seen_ = true;
        before_[1] = before_[0], before_[0] = line;
        if (!seen_) return;
        const int64_t low = static_cast<int64_t>(chain_.sum << 46) >> 46;
        const int64_t high = (static_cast<int64_t>(chain_.sum << 28) >> 46) + (low < 0);
        if (low != last_.low || high != last_.high) {
            std::fprintf(stderr, "line %ld: %ld and %ld, expected %ld and %ld\n", lines_,
                         static_cast<long>(high), static_cast<long>(low),
                         static_cast<long>(last_.high), static_cast<long>(last_.low));
            std::exit(1);
        }
        lines_++;
    }
    long lines() const { return lines_; }

  private:
    Vdot_dsp48 chain_{};
    std::array<Line, 2> before_{};
    Line last_{};
    bool seen_ = false;
    long lines_ = 0;
};

using Bytes = std::array<int, 4>;

// Weights of 8 bits as the array gives them, the low column's as offsets from -128.
Line whole(const Bytes &high, const Bytes &low, const Bytes &x) {
    Line line{.valid = true, .x = x, .a = 128};
    for (int i = 0; i < 4; i++) {
        line.d[i] = joined(high[i], low[i] + 128);
        line.high += int64_t{high[i]} * x[i], line.low += int64_t{low[i]} * x[i];
    }
    return line;
}

// Weights of 4 bits with their columns' zero points.
Line narrow(const Bytes &high, const Bytes &low, const Bytes &x, int high_zero, int low_zero) {
    Line line{.valid = true, .x = x, .a = joined(high_zero, low_zero)};
    for (int i = 0; i < 4; i++) {
        line.d[i] = joined(high[i], low[i]);
        line.high += int64_t{high[i] - high_zero} * x[i];
        line.low += int64_t{low[i] - low_zero} * x[i];
    }
    return line;
}

Bytes all(int value) { return {value, value, value, value}; }
} // namespace

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const int seed = std::atoi(argv[1]);
    std::mt19937 chance(static_cast<uint32_t>(seed));
    Checked chain(seed);
    const std::array<int, 4> bytes{-128, -127, 0, 127};
    for (int high : bytes)
        for (int low : bytes)
            for (int x : bytes) chain.step(whole(all(high), all(low), all(x)));
    for (int high : {0, 15})
        for (int low : {0, 15})
            for (int high_zero : {0, 15})
                for (int low_zero : {0, 15})
                    for (int x : bytes)
                        chain.step(narrow(all(high), all(low), all(x), high_zero, low_zero));
    auto some = [&](int first, int count) {
        Bytes made{};
        for (int &one : made)
            one = first + static_cast<int>(chance() % static_cast<uint32_t>(count));
        return made;
    };
    for (int n = 0; n < std::atoi(argv[2]); n++) {
        const Bytes x = some(-128, 256);
        Line line = chance() % 2
                        ? whole(some(-128, 256), some(-128, 256), x)
                        : narrow(some(0, 16), some(0, 16), x, static_cast<int>(chance() % 16),
                                 static_cast<int>(chance() % 16));
        line.valid = chance() % 4 != 0;
        line.clear = chance() % 16 == 0;
        chain.step(line);
    }
    std::printf("{\"lines\": %ld}\n", chain.lines());
}

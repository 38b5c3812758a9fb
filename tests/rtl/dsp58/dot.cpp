// Sums of a column's products against integer arithmetic, a new line of operands every cycle: all
// pairs of extreme values in all taps, every weight of 9 bits with every x in one tap, then random
// ones. dot SEED LINES
#include "Vdot_dsp58.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <verilated.h>

namespace {
constexpr int LATENCY = (TAPS + 2) / 3 + 1; // of the chain

struct Line {
    std::array<int, TAPS> w{}, x{};
};

class Checked {
  public:
    explicit Checked(int seed) { Verilated::randReset(2), Verilated::randSeed(seed); }

    // One cycle: these operands go in; the sum that comes out is that of LATENCY cycles ago.
    void step(const Line &line) {
        int64_t sum = 0;
        for (int i = 0; i < TAPS; i++) {
            dot_.w[i] = line.w[i] & 0x1ff;
            dot_.x[i] = line.x[i] & 0xff;
            sum += int64_t{line.w[i]} * line.x[i];
        }
        dot_.clk = 0;
        dot_.eval();
        dot_.clk = 1;
        dot_.eval();
        wanted_.push_back(sum);
        if (wanted_.size() < LATENCY) return;
        if (static_cast<int32_t>(dot_.sum) != wanted_.front()) {
            std::fprintf(stderr, "line %ld: %d, expected %ld\n", lines_,
                         static_cast<int32_t>(dot_.sum), static_cast<long>(wanted_.front()));
            std::exit(1);
        }
        wanted_.pop_front();
        lines_++;
    }
    long lines() const { return lines_; }

  private:
    Vdot_dsp58 dot_{};
    std::deque<int64_t> wanted_{};
    long lines_ = 0;
};
} // namespace

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const int seed = std::atoi(argv[1]);
    std::mt19937 chance(static_cast<uint32_t>(seed));
    Checked dot(seed);
    const std::array<int, 6> weights{-256, -255, -128, 127, 254, 255};
    const std::array<int, 4> operands{-128, -127, 126, 127};
    for (int w : weights)
        for (int x : operands) {
            Line line;
            line.w.fill(w), line.x.fill(x);
            dot.step(line);
        }
    for (int w = -256; w < 256; w++)
        for (int x = -128; x < 128; x++) {
            Line line;
            line.w[(w + x + 512) % TAPS] = w, line.x[(w + x + 512) % TAPS] = x;
            dot.step(line);
        }
    for (int n = 0; n < std::atoi(argv[2]); n++) {
        Line line;
        for (int i = 0; i < TAPS; i++) {
            const bool extreme = chance() % 4 == 0;
            line.w[i] = extreme ? weights[chance() % 6] : static_cast<int>(chance() % 512) - 256;
            line.x[i] = extreme ? operands[chance() % 4] : static_cast<int>(chance() % 256) - 128;
        }
        dot.step(line);
    }
    std::printf("{\"lines\": %ld}\n", dot.lines());
}

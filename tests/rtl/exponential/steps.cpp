// Compares horner_step and normal_multiply with the processor's FP32: steps PAIRS.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "Vsteps_bench.h"

namespace {
constexpr uint32_t C[7] = {0x3ab6887e, 0x3c0905b1, 0x3d2aaa8d, 0x3e2aaa6f,
                           0x3f000000, 0x3f800000, 0x3f800000};

uint32_t bits(float value) {
    uint32_t found;
    std::memcpy(&found, &value, sizeof found);
    return found;
}

float single(uint32_t value) {
    float found;
    std::memcpy(&found, &value, sizeof found);
    return found;
}

void edge(Vsteps_bench &top) {
    top.clk = 0;
    top.eval();
    top.clk = 1;
    top.eval();
}
} // namespace

int main(int argc, char **argv) {
    const long pairs = argc > 1 ? std::atol(argv[1]) : 1000;
    Vsteps_bench top;
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> of_r(-0.3466, 0.3466), whole(-1.0, 1.0);
    long tiny = 0;
    for (long n = 0; n < pairs; n++) {
        // r of the whole range, tiny ones, subnormals, zeros
        const int kind = static_cast<int>(random() % 4);
        float r = static_cast<float>(of_r(random));
        if (kind == 1)
            r = static_cast<float>(std::ldexp(of_r(random), -static_cast<int>(random() % 40)));
        if (kind == 2)
            r = static_cast<float>(std::ldexp(of_r(random), -static_cast<int>(random() % 160)));
        if (random() % 64 == 0) r = random() % 2 ? 0.0F : -0.0F;
        tiny += std::fabs(r) < 1e-30F;
        float p[6], wanted[6];
        for (int i = 0; i < 6; i++) {
            // near what the step before gives
            const double about = static_cast<double>(single(C[i])) *
                                 (1.0 + 0.42 * (i == 0 ? 0.0 : whole(random)));
            p[i] = static_cast<float>(about);
            const float product = p[i] * r;
            wanted[i] = product + single(C[i + 1]);
            top.p[i] = bits(p[i]);
        }
        const float a = static_cast<float>(
            std::ldexp(whole(random), static_cast<int>(random() % 100) - 50));
        const float b = static_cast<float>(
            std::ldexp(whole(random), static_cast<int>(random() % 100) - 50));
        top.r = bits(r);
        top.a = bits(random() % 64 == 0 ? std::copysign(0.0F, a) : a);
        top.b = bits(b);
        const float times = single(top.a) * b;
        top.valid = 1;
        edge(top);
        top.valid = 0;
        for (int cycle = 1; cycle < 9; cycle++) {
            edge(top);
            if (cycle == 3 && (!top.product_valid || top.product != bits(times))) {
                std::fprintf(stderr, "%a * %a: %a, not %a\n", single(top.a), b, single(top.product),
                             times);
                return 1;
            }
        }
        for (int i = 0; i < 6; i++)
            if (!(top.sum_valid >> i & 1) || top.sum[i] != bits(wanted[i])) {
                std::fprintf(stderr, "step %d: %a * %a: %a, not %a\n", i, p[i], r,
                             single(top.sum[i]), wanted[i]);
                return 1;
            }
    }
    std::printf("{\"pairs\": %ld, \"tiny\": %ld}\n", pairs, tiny);
    return 0;
}

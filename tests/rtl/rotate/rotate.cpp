// Groups that read the tiles of a matmul through line_rotate: each group gets the blocks of its
// tiles in order, for every number of blocks a tile, and in no turn do two groups read one bank.
// rotate TILES
#include "Vline_rotate.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <utility>
#include <verilated.h>

namespace {
constexpr uint32_t BANKS = 32, LATENCY = 3;
struct Wanted {
    uint32_t group, block;
};
} // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const uint32_t rounds = static_cast<uint32_t>(std::atoi(argv[1]));
    Vline_rotate rotate;
    Verilated::randReset(2);
    std::deque<std::deque<Wanted>> wanted;
    uint64_t lines = 0;
    for (uint32_t blocks = 1; blocks <= 97; blocks++)
        for (uint32_t round = 0; round < rounds; round++) {
            // bank b has blocks b, b + 32 ..; group g the tile 32*round + g, which begins in bank
            // `first`
            for (uint32_t t = 0; t < blocks + BANKS - 1; t++) {
                std::deque<Wanted> now;
                for (uint32_t b = 0; b < BANKS; b++) rotate.lines[b] = 0xdead0000u;
                for (uint32_t g = 0; g < BANKS; g++) {
                    const uint32_t begin = (BANKS * round + g) * blocks;
                    const uint32_t late = (begin - g) % BANKS;
                    if (t < late || t - late >= blocks) continue;
                    const uint32_t block = begin + t - late, bank = block % BANKS;
                    if (rotate.lines[bank] != 0xdead0000u) {
                        std::fprintf(stderr, "bank %u is read twice\n", bank);
                        return 1;
                    }
                    rotate.lines[bank] = block;
                    now.push_back({g, block});
                }
                rotate.turn = t % BANKS;
                rotate.clk = 0;
                rotate.eval();
                rotate.clk = 1;
                rotate.eval();
                wanted.push_back(std::move(now));
                if (wanted.size() < LATENCY) continue;
                for (const Wanted &one : wanted.front()) {
                    if (rotate.rotated[one.group] != one.block) {
                        std::fprintf(stderr, "group %u got block %u, expected %u\n", one.group,
                                     rotate.rotated[one.group], one.block);
                        return 1;
                    }
                    lines++;
                }
                wanted.pop_front();
            }
        }
    std::printf("{\"lines\": %lu}\n", static_cast<unsigned long>(lines));
}

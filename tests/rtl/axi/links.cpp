// Frames from the control's clock to a link's core and back by it, with clocks of any ratio and
// resets of either side.
//   links SEED FRAMES      prints one JSON line
#include "Vlink_streams.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>
#include <verilated.h>

using Frame = std::vector<uint8_t>;

namespace {
Vlink_streams bench;
std::mt19937 chance;

[[noreturn]] void fail(const char *why) {
    std::printf("%s\n", why);
    std::exit(1);
}

// The bytes of frame `number`, which its first four say.
Frame frame_of(uint32_t number) {
    std::mt19937 bytes(number + 1);
    Frame frame(36 + bytes() % (bytes() % 3 ? 200 : 4097));
    for (auto &byte : frame) byte = static_cast<uint8_t>(bytes());
    std::memcpy(frame.data(), &number, sizeof number);
    return frame;
}

struct Beat {
    uint8_t data[32];
    uint32_t keep;
    bool last;
};

uint32_t bytes_of(uint64_t keep) {
    uint32_t count = 0;
    while (keep >> count & 1 && count < 63) count++;
    return keep == ~0ull ? 64 : count;
}

// The Router's side.
struct Control {
    uint32_t next = 0, pause = 0, hold = 0;
    Frame frame{}, got{};
    size_t at = 0;
    bool offers = false, reset = false;
    uint32_t resets_left = 0, whole = 0, cut = 0;
    int64_t last_number = -1;
    uint32_t limit = 0; // frames to send

    void begin() { // the Router is reset: frames on both ways are lost
        frame.clear();
        got.clear();
        at = 0;
        offers = false;
    }
    // Between two edges.
    void drive() {
        if (hold == 0 && chance() % 500 == 0) hold = chance() % 300;
        hold -= hold > 0;
        bench.rx_ready = hold == 0 && chance() % 4 > 0;
        if (at == frame.size() && !offers && next < limit && !reset && pause-- == 0) {
            frame = frame_of(next++);
            at = 0;
            pause = chance() % 3 ? 0 : chance() % 20;
        }
        if (pause > 100) pause = 0;
        if (!offers && at < frame.size() && chance() % 4) {
            size_t count = std::min<size_t>(64, frame.size() - at);
            std::memset(&bench.tx_data[0], 0x5a, 64);
            std::memcpy(&bench.tx_data[0], &frame[at], count);
            bench.tx_keep = count == 64 ? ~0ull : (1ull << count) - 1;
            bench.tx_last = at + count == frame.size();
            offers = true;
        }
        bench.tx_valid = offers && !reset;
    }
    void edge() {
        if (reset) {
            begin();
            return;
        }
        if (bench.tx_valid && bench.tx_ready) {
            at = std::min(frame.size(), at + 64);
            offers = false;
        }
        if (!bench.rx_valid || !bench.rx_ready) return;
        const auto *data = reinterpret_cast<const uint8_t *>(&bench.rx_data[0]);
        got.insert(got.end(), data, data + bytes_of(bench.rx_keep));
        if (bench.rx_last) judge(bench.rx_keep == 0);
    }
    // A whole frame is one that was sent, later than those before; a cut one is the beginning of
    // one, and at most a half word of zeros.
    void judge(bool ended) {
        uint32_t number = 0;
        if (got.size() >= sizeof number) std::memcpy(&number, got.data(), sizeof number);
        bool known = got.size() >= sizeof number && number < next;
        Frame sent = known ? frame_of(number) : Frame();
        if (known && got == sent && !ended) {
            if (last_number >= number) fail("a frame comes twice, or before another");
            last_number = number;
            whole++;
        } else {
            size_t same = 0;
            while (known && same < got.size() && same < sent.size() && got[same] == sent[same])
                same++;
            bool zeros = std::all_of(got.begin() + static_cast<long>(same), got.end(),
                                     [](uint8_t b) { return b == 0; });
            if (!ended && !(zeros && (known || got.size() == 32)))
                fail("a frame is made of two, or torn");
            if (ended && same < got.size()) fail("a frame that ends early has other bytes");
            cut++;
        }
        got.clear();
    }
};

// The link's core: what goes out comes in again, a while later.
struct Core {
    std::deque<Beat> beats{};
    bool offers = false, reset = false;
    uint32_t steady = 0; // cycles since anything was reset, or the channel came or went
    uint32_t room = 1 + chance() % 60;

    void drive() {
        if (chance() % 2000 == 0) {
            bench.channel_up = !bench.channel_up;
            steady = 0;
        }
        if (steady++ > 200 && bench.link_up != bench.channel_up)
            fail("the Router does not see whether the channel is up");
        bench.out_ready = beats.size() < room && chance() % 8 > 0;
        if (!offers && !beats.empty() && chance() % 8 > 0) offers = true;
        bench.in_valid = offers && !reset;
        if (!offers) return;
        std::memcpy(&bench.in_data[0], beats.front().data, 32);
        bench.in_keep = beats.front().keep;
        bench.in_last = beats.front().last;
    }
    void edge() {
        if (reset) {
            beats.clear();
            offers = false;
            steady = 0;
            return;
        }
        if (bench.in_valid && bench.in_ready) {
            beats.pop_front();
            offers = false;
        }
        if (!bench.out_valid || !bench.out_ready) return;
        Beat beat{};
        std::memcpy(beat.data, &bench.out_data[0], 32);
        beat.keep = bench.out_keep;
        beat.last = bench.out_last;
        if (beat.keep == 0 || (!beat.last && beat.keep != ~0u))
            fail("a word to the core is not full");
        beats.push_back(beat);
    }
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) return 2;
    const auto seed = static_cast<uint32_t>(std::atoi(arguments[1]));
    const auto frames = static_cast<uint32_t>(std::atoi(arguments[2]));
    chance.seed(seed);
    Verilated::randReset(2);
    Verilated::randSeed(static_cast<int>(seed) + 1);
    Control control;
    Core core;
    uint32_t control_resets = 0, link_resets = 0, counted = 0;
    uint64_t period = 10 + chance() % 40, link_period = 10 + chance() % 40, due = 3, link_due = 5;
    uint64_t control_until = 12 * (period + link_period), link_until = control_until;
    uint64_t next_reset = ~0ull, settled = 0, quiet = 0;
    control.limit = frames / 4; // without a reset
    for (uint64_t now = 0;; now++) {
        control.reset = now < control_until;
        core.reset = now < link_until;
        if (control.reset) core.steady = 0;
        if (now == due) {
            bench.rst = control.reset;
            control.drive();
            bench.eval();
            control.edge();
            bench.clk = 1;
            bench.eval();
            bench.clk = 0;
            bench.eval();
            due += period + chance() % 3;
            quiet = control.next == control.limit && control.at == control.frame.size() ? quiet + 1
                                                                                        : 0;
        }
        if (now == link_due) {
            bench.link_rst = core.reset;
            core.drive();
            bench.eval();
            core.edge();
            bench.link_clk = 1;
            bench.eval();
            bench.link_clk = 0;
            bench.eval();
            link_due += link_period + chance() % 3;
        }
        if (now == next_reset) {
            bool control_side = chance() % 2;
            (control_side ? control_until : link_until) = now + 1 + chance() % (20 * period);
            (control_side ? control_resets : link_resets)++;
            next_reset = control.next < control.limit ? now + 1 + chance() % (1000 * period)
                                                      : ~0ull;
        }
        if (quiet < 8000) continue;
        quiet = 0;
        if (control.limit == frames / 4) { // all of them came
            if (control.whole != control.limit || control.cut)
                fail("a frame is lost without a reset");
            control.limit = frames - frames / 4;
            next_reset = now + 1;
        } else if (control.limit < frames) { // behind the last reset nothing is lost
            counted = control.whole;
            control.limit = frames;
            next_reset = ~0ull;
            settled = control.cut;
        } else {
            if (control.whole - counted != frames / 4 || control.cut != settled)
                fail("a frame is lost behind a reset");
            break;
        }
    }
    std::printf("{\"frames\": %u, \"whole\": %u, \"cut\": %u, \"control_resets\": %u, "
                "\"link_resets\": %u}\n",
                frames, control.whole, control.cut, control_resets, link_resets);
    return 0;
}

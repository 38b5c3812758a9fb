// What happens to one frame on its way to a Router, or to what the Router is told.
#ifndef ROUTER_MUTATIONS_HPP
#define ROUTER_MUTATIONS_HPP

#include "reference.h"
#include "scene.hpp"

// A frame as the emulator gets it and as the simulated Router does: another one where its end is
// cut or moved.
struct Twin {
    Frame emulated, simulated;
};

class Mutation {
  public:
    Mutation(Random &random, std::vector<Twin> &frames, const Gather &gather)
        : random_(random), frames_(frames), gather_(gather), at_(random.below(frames.size())) {}

    // What it was; empty: nothing could be done.
    std::string apply() {
        bool last = at_ + 1 == frames_.size();
        switch (random_.below(12)) {
        case 0: return flip();
        case 1: frames_.erase(frames_.begin() + at_); return "dropped";
        case 2: return last ? "" : again(frames_[at_].emulated, "duplicated");
        case 3: return swap();
        case 4: return older(last);
        case 5: return later();
        case 6: return field();
        case 7: return cut();
        case 8: return poison();
        case 9: return last ? "" : test();
        case 10: return garble();
        default: return flip_header();
        }
    }

  private:
    void set(const Frame &frame) { frames_[at_] = {frame, frame}; }

    std::string again(const Frame &frame, const char *what) {
        frames_.insert(frames_.begin() + at_, {frame, frame});
        return what;
    }

    template <class Change> Frame changed(Change change) {
        Frame frame = frames_[at_].emulated;
        lora_frame header = header_of(frame);
        change(header);
        std::memcpy(frame.data(), &header, sizeof header);
        reference_seal(frame.data());
        return frame;
    }

    std::string flip() {
        Frame frame = frames_[at_].emulated;
        size_t byte = sizeof(lora_frame) + random_.below(frame.size() - sizeof(lora_frame));
        frame[byte] ^= static_cast<uint8_t>(1 << random_.below(8));
        set(frame);
        return "flipped";
    }
    std::string flip_header() {
        Frame frame = frames_[at_].emulated;
        frame[random_.below(sizeof(lora_frame))] ^= static_cast<uint8_t>(1 << random_.below(8));
        set(frame);
        return "flipped_header";
    }
    std::string garble() { // under a right CRC: nobody can see it
        Frame frame = frames_[at_].emulated;
        frame[sizeof(lora_frame) + random_.below(frame.size() - sizeof(lora_frame) - 4)] ^= 0x5a;
        reference_seal(frame.data());
        set(frame);
        return "garbled";
    }
    std::string swap() {
        if (at_ + 1 == frames_.size()) return "";
        std::swap(frames_[at_], frames_[at_ + 1]);
        return "swapped";
    }
    std::string older(bool last) {
        bool instead = random_.once_in(2);
        uint32_t kind = random_.below(3);
        Frame frame = changed([=](lora_frame &h) {
            if (kind == 0) h.epoch -= 1;
            else if (kind == 1) h.step -= 1;
            else h.collective = static_cast<uint16_t>(h.collective - 1);
        });
        if (header_of(frame).collective == 0xffff || (last && !instead)) return "";
        if (!instead) return again(frame, "stale_besides");
        set(frame);
        return "stale";
    }
    std::string later() {
        uint32_t kind = random_.below(3);
        Frame frame = changed([=](lora_frame &h) {
            if (kind == 0) h.epoch += 1;
            else if (kind == 1) h.step += 1;
            else h.collective++;
        });
        if (header_of(frame).collective == 0) return "";
        return again(frame, "of_the_future");
    }
    std::string field() {
        uint32_t which = random_.below(8), value = random_.below(5) + 1;
        set(changed([=](lora_frame &h) {
            if (which == 0) h.hop = static_cast<uint8_t>(h.hop + value);
            if (which == 1) h.hop = static_cast<uint8_t>(h.hop - value);
            if (which == 2) h.segment = static_cast<uint8_t>(h.segment + value);
            if (which == 3) h.source = static_cast<uint8_t>(h.source + value);
            if (which == 4) h.segments = static_cast<uint16_t>(h.segments + value);
            if (which == 5) h.part = static_cast<uint16_t>(h.part + value);
            if (which == 6) h.offset += value;
            if (which == 7) h.row_group = static_cast<uint16_t>(h.row_group + value);
        }));
        return "wrong_field";
    }
    std::string cut() { // the stream's frame is longer or shorter than its header says
        Twin &twin = frames_[at_];
        if (random_.once_in(2))
            twin.simulated.resize(twin.simulated.size() - 1 - random_.below(60) % 36);
        else twin.simulated.resize(twin.simulated.size() + 1 + random_.below(200), 0);
        twin.emulated[twin.emulated.size() - 1] ^= 1;
        return "other_length";
    }
    std::string poison() {
        lora_frame header{};
        header.magic = LORA_FRAME_MAGIC;
        header.epoch = gather_.epoch;
        header.step = gather_.step - random_.below(2);
        header.hop = 1;
        header.kind = LORA_FRAME_POISON;
        Frame frame(sizeof header + 4);
        std::memcpy(frame.data(), &header, sizeof header);
        reference_seal(frame.data());
        return again(frame, "poison");
    }
    std::string test() {
        return again(changed([](lora_frame &h) { h.kind = LORA_FRAME_TEST; }), "of_a_test");
    }

    Random &random_;
    std::vector<Twin> &frames_;
    const Gather &gather_;
    size_t at_;
};

// A field of the command or list that may be refused.
inline void change_command(Random &random, Gather &gather) {
    lora_gather &c = gather.command;
    lora_list &list = gather.list;
    auto some = [&](std::initializer_list<uint32_t> values) {
        return *(values.begin() + random.below(values.size()));
    };
    switch (random.below(13)) {
    case 0: c.element_bytes = static_cast<uint16_t>(some({0, 3, 16, 0x102})); break;
    case 1: c.columns = some({0, 0x20000001, 0xffffffff}); break;
    case 2: c.share_unit = 0; break;
    case 3: c.segment_unit = 0; break;
    case 4: c.span = static_cast<uint16_t>(some({1, 2, 3, 4, 0x100})); break;
    case 5: list.stage_boards = static_cast<uint8_t>(some({0, 1, 2, 3, 4, 255})); break;
    case 6: c.stride = some({0, c.stride - 1, 0xffffffff, 0x10000000}); break;
    case 7: c.offset = some({0xffffffff, 0xfffffff0, c.offset + 64, 1u << 27}); break;
    case 8: list.port_next = static_cast<uint8_t>(some({0, 1, 2, 255})); break;
    case 9: list.port_previous = static_cast<uint8_t>(some({0, 1, 2, 255})); break;
    case 10: list.boards = static_cast<uint8_t>(some({0, 1, 65, 200})); break;
    case 11: list.rank = static_cast<uint8_t>(some({0, 1, 4, 64, 255})); break;
    default: gather.rows = 0; break;
    }
}

#endif

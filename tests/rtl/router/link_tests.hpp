// The link test of one Router beside the emulator's, with the same frames on both ports; and of two
// Routers joined.
#ifndef ROUTER_LINK_TESTS_HPP
#define ROUTER_LINK_TESTS_HPP

#include "single.hpp"

struct TestEnding {
    uint32_t state;
    lora_link_test record;
    std::vector<Frame> sent[LORA_PORTS];
};

class LinkTest {
  public:
    LinkTest(Random &random, Tally &tally) : random_(random), tally_(tally) {
        record_.size = sizeof record_;
        record_.frames = 1 + random.below(random.once_in(3) ? 12 : 3);
        record_.payload = random.once_in(12)  ? LORA_FRAME_PAYLOAD
                          : random.once_in(3) ? LORA_FRAME_PAYLOAD / 4 + random.below(8)
                                              : 16 + random.below(300);
        record_.seed = static_cast<uint32_t>(random.next());
        for (auto &port : record_.ports) {
            std::memset(&port, 0xcc, sizeof port);
            port.enabled = !random.once_in(8);
        }
        if (random.once_in(12)) spoil();
    }

    void run_alone() {
        make_frames();
        down_ = random_.once_in(10) ? 1 + random_.below(3) : 0;
        std::string what = down_ ? "test_link_down" : change();
        TestEnding wanted = emulate();
        try {
            compare(simulate(), wanted);
        } catch (const std::exception &error) {
            throw std::runtime_error("link test, " + what + ": " + error.what());
        }
        tally_["tests_" + std::to_string(wanted.state)]++;
        for (const lora_link_test_port &port : wanted.record.ports)
            if (right() && !down_) tally_["test_bad"] += port.bad;
        if (!what.empty()) tally_["of_tests_" + what]++;
    }

    // Two cards whose ports are crossed: both send before they take.
    void run_joined() {
        record_.frames = 10 + random_.below(30);
        record_.payload = 16 + random_.below(200);
        record_.size = sizeof record_;
        VerilatedContext context;
        context.randReset(2);
        context.randSeed(1 + static_cast<int>(random_.below(1 << 30)));
        std::unique_ptr<Card> cards[2];
        std::vector<std::unique_ptr<Cable>> cables;
        for (auto &card : cards) card = std::make_unique<Card>(context, 64, random_);
        for (uint32_t b = 0; b < 2; b++)
            for (uint32_t p = 0; p < LORA_PORTS; p++) {
                cables.push_back(std::make_unique<Cable>(random_, nullptr));
                cards[b]->out[p] = cards[1 - b]->in[1 - p] = cables.back().get();
            }
        for (auto &port : record_.ports) port.enabled = 1;
        uint64_t now = 0, late = 40 + random_.below(3000);
        auto ended = [](const auto &card) { return card->test_end != LORA_UNIT_BUSY; };
        for (; !std::all_of(cards, cards + 2, ended); now++) {
            if (now > 400000) throw std::runtime_error("two link tests stand still");
            if (now == 40) cards[0]->test(record_, 77);
            if (now == late) cards[1]->test(record_, 78);
            for (auto &card : cards) card->cycle(now);
        }
        for (uint32_t b = 0; b < 2; b++) {
            lora_link_test found = cards[b]->record();
            for (uint32_t p = 0; p < LORA_PORTS; p++) {
                const lora_link_test_port &port = found.ports[p];
                if (cards[b]->test_end != LORA_UNIT_DONE || port.sent != record_.frames ||
                    port.received != record_.frames || port.bad || port.peer_serial != 78 - b ||
                    port.peer_port != 1 - p || port.first_bad != ~0u)
                    throw std::runtime_error("two link tests do not find each other");
            }
        }
        tally_["tests_joined"]++;
    }

  private:
    void spoil() {
        switch (random_.below(5)) {
        case 0: record_.size--; break;
        case 1: record_.frames = 0; break;
        case 2: record_.payload = 15; break;
        case 3: record_.payload = LORA_FRAME_PAYLOAD + 1; break;
        default: record_.payload = 0x2000 + 64; break;
        }
    }
    bool right() const {
        return record_.size == sizeof record_ && record_.frames && record_.payload >= 16 &&
               record_.payload <= LORA_FRAME_PAYLOAD;
    }

    // What the far ends send, by the emulator.
    void make_frames() {
        if (!right()) return;
        lora_link_test far = record_;
        for (auto &port : far.ports) port.enabled = 1;
        std::vector<Frame> sent[LORA_PORTS];
        reference *r = reference_new(1, 64);
        reference_serial(r, 0, far_serial_);
        reference_test(r, 0, &far, note, sent);
        reference_free(r);
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            for (uint32_t i = random_.below(3); i > 0 && random_.once_in(2); i--) {
                // of an earlier run
                Frame old = sent[p][random_.below(sent[p].size())];
                lora_frame header = header_of(old);
                if (random_.once_in(2)) header.epoch ^= 1u << random_.below(32);
                else header.kind = LORA_FRAME_DATA;
                std::memcpy(old.data(), &header, sizeof header);
                reference_seal(old.data());
                frames_[p].push_back({old, old});
            }
            for (const Frame &frame : sent[1 - p]) frames_[p].push_back({frame, frame});
        }
    }

    // What happens to one frame on its way; empty: nothing does.
    std::string change() {
        std::vector<Twin> &frames = frames_[random_.below(LORA_PORTS)];
        if (frames.empty() || random_.once_in(3)) return "";
        size_t at = random_.below(frames.size());
        Frame &frame = frames[at].emulated;
        size_t byte = sizeof(lora_frame) + random_.below(frame.size() - sizeof(lora_frame) - 4);
        std::string what = "flipped";
        switch (random_.below(6)) {
        case 0: frame[byte] ^= static_cast<uint8_t>(1 << random_.below(8)); break;
        case 1:
            frame[random_.below(sizeof(lora_frame))] ^= static_cast<uint8_t>(1 << random_.below(8));
            what = "flipped_header";
            break;
        case 2: // under a right CRC: the pattern, the far end's name, or the number
            if (random_.once_in(3)) frame[offsetof(lora_frame, step)] ^= 1;
            else frame[random_.once_in(2) ? byte : sizeof(lora_frame) + random_.below(8)] ^= 0x5a;
            reference_seal(frame.data());
            what = "garbled";
            break;
        case 3: frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(at)); return "dropped";
        case 4:
            frames.insert(frames.begin() + static_cast<std::ptrdiff_t>(at), frames[at]);
            return "duplicated";
        default:
            if (at + 1 == frames.size()) return "";
            std::swap(frames[at], frames[at + 1]);
            return "swapped";
        }
        frames[at].simulated = frame;
        return what;
    }

    TestEnding emulate() {
        TestEnding ending{};
        ending.record = record_;
        reference *r = reference_new(1, 64);
        reference_serial(r, 0, serial_);
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            if (down_ >> p & 1) reference_down(r, 0, p);
            for (const Twin &twin : frames_[p])
                reference_put(r, 0, p, twin.emulated.data(),
                              static_cast<uint32_t>(twin.emulated.size()));
        }
        for (int i = 0; i < 3; i++) {
            ending.state = reference_test(r, 0, &ending.record, note, ending.sent);
            if (ending.state != LORA_UNIT_BUSY) break;
        }
        reference_free(r);
        return ending;
    }

    TestEnding simulate() {
        TestEnding ending{};
        VerilatedContext context;
        context.randReset(2);
        context.randSeed(1 + static_cast<int>(random_.below(1 << 30)));
        Card card(context, 64, random_);
        std::unique_ptr<Cable> in[LORA_PORTS], out[LORA_PORTS];
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            in[p] = std::make_unique<Cable>(random_, nullptr);
            out[p] = std::make_unique<Cable>(random_, &ending.sent[p]);
            card.in[p] = in[p].get();
            card.out[p] = out[p].get();
        }
        card.unit->epoch = record_.seed + 5; // frames of a test are not dropped as old ones
        uint64_t now = 0;
        for (; now < 40; now++) card.cycle(now);
        card.unit->link_up = static_cast<uint8_t>(3 & ~down_);
        card.test(record_, serial_);
        card.cycle(now++);
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            for (const Twin &twin : frames_[p]) in[p]->put(twin.simulated, now);
        for (uint64_t moved = now;
             now - moved < 2000 + 2 * record_.payload && card.test_end == LORA_UNIT_BUSY; now++) {
            if (card.unit->rx_valid & card.unit->rx_ready) moved = now;
            card.cycle(now);
            if (Single::drain(card)) moved = now;
        }
        for (uint64_t end = now + 1000; now < end; now++) {
            card.cycle(now);
            Single::drain(card);
        }
        ending.state = card.test_end;
        ending.record = card.record();
        return ending;
    }

    static void note(void *user, uint32_t port, const uint8_t *frame, uint32_t bytes) {
        static_cast<std::vector<Frame> *>(user)[port].emplace_back(frame, frame + bytes);
    }

    void compare(const TestEnding &found, const TestEnding &wanted) const {
        if (found.state != wanted.state)
            throw std::runtime_error("state " + std::to_string(found.state) + ", expected " +
                                     std::to_string(wanted.state));
        if (down_ && right()) return; // how far it was depends on time
        if (std::memcmp(&found.record, &wanted.record, sizeof found.record)) {
            auto *a = reinterpret_cast<const uint32_t *>(&found.record);
            auto *b = reinterpret_cast<const uint32_t *>(&wanted.record);
            for (size_t i = 0; i < sizeof found.record / 4; i++)
                if (a[i] != b[i])
                    throw std::runtime_error("word " + std::to_string(i) + " of the record is " +
                                             std::to_string(a[i]) + ", expected " +
                                             std::to_string(b[i]));
        }
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            if (found.sent[p] != wanted.sent[p])
                throw std::runtime_error("frames that leave differ");
    }

    Random &random_;
    Tally &tally_;
    lora_link_test record_{};
    std::vector<Twin> frames_[LORA_PORTS];
    uint32_t serial_ = static_cast<uint32_t>(random_.next());
    uint32_t far_serial_ = static_cast<uint32_t>(random_.next());
    uint32_t down_ = 0;
};

#endif

// What a campaign of random lists has had in it, by name; printed as one JSON line.
#ifndef TEST_SEQUENCER_TALLY_HPP
#define TEST_SEQUENCER_TALLY_HPP

#include <cstdio>
#include <map>
#include <string>

#include "board.hpp"

class Tally {
  public:
    void add(const char *name, uint64_t times = 1) { counts_[name] += times; }

    // A command that a unit has run, as it arrived there.
    void command(const lora_command &c) {
        static const struct {
            uint32_t flag;
            const char *name;
        } flags[] = {{LORA_FLAG_SELECTED, "selected"},
                     {LORA_FLAG_PACK, "packed"},
                     {LORA_FLAG_VOTES, "of_votes"},
                     {LORA_FLAG_WAIT_GROUPS, "wait_groups"},
                     {LORA_FLAG_WAIT_SEGMENTS, "wait_segments"},
                     {LORA_FLAG_SIGNAL_SEGMENTS, "signal_segments"},
                     {LORA_FLAG_SIGNAL_HEADS, "signal_heads"}};
        for (const auto &one : flags)
            if (c.flags & one.flag) add(one.name);
        if (c.opcode == LORA_CMD_ADAPTER) add("adapters");
    }

    // The first failure of a run.
    void failure(const VSequencer &s) {
        bool unit = s.blame_unit != ~0u;
        add("failures");
        if (s.blame_code == LORA_ERR_WATCHDOG) add(s.blame_counter == ~0u ? "hangs" : "waits");
        else if (!unit) add(s.blame_code == LORA_ERR_CRC ? "damaged_chunks" : "bus_errors");
        else if (s.blame_found == LORA_UNIT_IDLE) add("forgotten");
        else if (s.blame_code == LORA_ERR_LINK_POISON) add("poison_received");
        else if (s.blame_code == LORA_ERR_LINK_CRC || s.blame_code == LORA_ERR_LINK_DOWN)
            add("link_errors");
        else add("unit_errors");
    }

    void print() const {
        const char *comma = "";
        std::printf("{");
        for (const auto &[name, count] : counts_) {
            std::printf("%s\"%s\": %llu", comma, name.c_str(), (unsigned long long)count);
            comma = ", ";
        }
        std::printf("}\n");
    }

  private:
    std::map<std::string, uint64_t> counts_;
};

#endif

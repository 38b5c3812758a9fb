// Lists at random. In list order all waits hold, so they reach END; `reckless` ones have waits that
// may never hold, or only by a command further on.
#ifndef TEST_SEQUENCER_LISTS_HPP
#define TEST_SEQUENCER_LISTS_HPP

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "reference.h"

struct Random {
    std::mt19937_64 engine;
    explicit Random(uint64_t seed) : engine(seed) {}
    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(engine() % limit); }
    uint32_t between(uint32_t first, uint32_t last) { return first + below(last - first + 1); }
    bool once_in(uint32_t times) { return below(times) == 0; }
};

struct List {
    std::vector<lora_command> commands;
    test_run run{};
};

inline uint32_t row_groups(uint32_t rows) { return (rows + LORA_ROW_GROUP - 1) / LORA_ROW_GROUP; }

class ListMaker {
  public:
    ListMaker(Random &random, bool reckless) : random_(random), reckless_(reckless) {}

    List make(uint32_t count) {
        List list;
        test_run &run = list.run;
        counters_ = random_.once_in(20) ? random_.between(16, LORA_MAX_COUNTERS)
                                        : random_.between(8, 60);
        totals_.assign(counters_, 0);
        run.rows = random_.once_in(3) ? random_.below(LORA_MAX_ROWS + 1) : random_.between(1, 2);
        run.selected = random_.below(run.rows + 1);
        run.moves_kv = random_.below(2);
        run.boards = random_.between(1, 2);
        run_ = &run;
        for (uint32_t u = 0; u < LORA_UNITS; u++) weights_[u] = 1 + random_.below(5);
        bool fences = random_.once_in(2), voted = false;
        for (uint32_t i = 0; i < count; i++)
            list.commands.push_back(command(i, i + 1 == count, fences, voted));
        run.commands = list.commands.data();
        run.command_count = count;
        run.counter_count = counters_;
        return list;
    }

  private:
    uint32_t unit() {
        uint32_t sum = 0, at;
        for (uint32_t u = 1; u < LORA_UNITS; u++) sum += weights_[u];
        at = random_.below(sum);
        for (uint32_t u = 1; u < LORA_UNITS; u++) {
            if (at < weights_[u]) return u;
            at -= weights_[u];
        }
        return 1;
    }

    void opcode(lora_command &c) {
        static const uint8_t of_mpu[] = {LORA_CMD_MATRIX, LORA_CMD_ATTENTION, LORA_CMD_ADAPTER};
        static const uint8_t of_dma[] = {LORA_CMD_KV_STORE, LORA_CMD_MOVE_ROWS, LORA_CMD_KV_COMMIT};
        c.unit = static_cast<uint8_t>(unit());
        if (c.unit == LORA_UNIT_MPU) c.opcode = of_mpu[random_.below(3)];
        if (c.unit == LORA_UNIT_VFU) c.opcode = LORA_CMD_VECTOR;
        if (c.unit == LORA_UNIT_ROUTER) c.opcode = LORA_CMD_GATHER;
        if (c.unit == LORA_UNIT_DMA) c.opcode = of_dma[random_.below(3)];
        if (random_.once_in(5)) c.flags |= LORA_FLAG_SELECTED;
        if (c.opcode == LORA_CMD_MOVE_ROWS && random_.once_in(4)) c.flags |= LORA_FLAG_PACK;
        if ((c.opcode == LORA_CMD_MOVE_ROWS || c.opcode == LORA_CMD_GATHER) && random_.once_in(10))
            c.flags |= LORA_FLAG_VOTES;
        if (c.opcode == LORA_CMD_GATHER && !random_.once_in(4))
            c.flags |= LORA_FLAG_SIGNAL_SEGMENTS;
        if (c.opcode == LORA_CMD_ATTENTION && !random_.once_in(4))
            c.flags |= LORA_FLAG_SIGNAL_HEADS;
    }

    uint32_t groups_of(const lora_command &c) const {
        if (c.flags & LORA_FLAG_VOTES) return run_->rows != 0;
        return row_groups(c.flags & (LORA_FLAG_SELECTED | LORA_FLAG_PACK) ? run_->selected
                                                                          : run_->rows);
    }

    uint32_t total(uint32_t counter, bool wide) const {
        return *std::min_element(totals_.begin() + counter,
                                 totals_.begin() + counter + (wide ? 8 : 1));
    }

    void wait(lora_command &c) {
        if (random_.once_in(5)) return;
        bool wide = random_.once_in(4);
        uint32_t counter = random_.below(counters_), value, groups = groups_of(c);
        if (!recent_.empty() && !random_.once_in(5)) {
            auto [at, is_wide] = recent_[random_.below(static_cast<uint32_t>(recent_.size()))];
            counter = at;
            wide = is_wide && !random_.once_in(3);
        }
        if (wide) counter = std::min(counter, counters_ - 8);
        value = total(counter, wide);
        if (random_.once_in(3)) value = random_.below(value + 1);
        if (reckless_ && random_.once_in(12)) value += random_.between(1, 3);
        if (random_.once_in(3)) {
            c.flags |= LORA_FLAG_WAIT_GROUPS;
            value = groups ? value / groups : random_.below(60000);
        }
        if (wide) c.flags |= LORA_FLAG_WAIT_SEGMENTS;
        c.wait_counter = static_cast<uint16_t>(counter);
        c.wait_value = static_cast<uint16_t>(std::min(value, 65535u));
    }

    void raise(uint32_t counter, uint32_t by) {
        totals_[counter] = std::min(totals_[counter] + by, 65535u);
    }

    void signal(lora_command &c) {
        bool wide = c.flags & LORA_FLAG_SIGNAL_SEGMENTS;
        uint16_t heads = static_cast<uint16_t>(random_.once_in(20) ? 40000 : random_.below(40));
        if (c.flags & LORA_FLAG_SIGNAL_HEADS)
            std::memcpy(reinterpret_cast<uint8_t *>(&c) + 16, &heads, 2);
        if (random_.once_in(8)) return;
        uint32_t counter = random_.below(wide ? counters_ - 7 : counters_);
        c.signal_counter = static_cast<uint16_t>(counter);
        for (uint32_t s = 0; wide && s < LORA_SEGMENTS; s++) raise(counter + s, groups_of(c));
        if (!wide) raise(counter, c.flags & LORA_FLAG_SIGNAL_HEADS ? heads : 1);
        recent_.push_back({counter, wide});
        if (recent_.size() > 6) recent_.pop_front();
    }

    lora_command command(uint32_t index, bool last, bool fences, bool &voted) {
        lora_command c{};
        for (uint32_t &word : c.body) word = static_cast<uint32_t>(random_.engine());
        c.wait_counter = c.signal_counter = LORA_NO_COUNTER;
        c.unit = LORA_UNIT_CONTROL;
        if (last) {
            c.opcode = LORA_CMD_END;
        } else if (fences && random_.once_in(25)) {
            bool vote = !voted && random_.once_in(2);
            voted |= vote;
            c.opcode = vote ? LORA_CMD_BALLOT : LORA_CMD_FENCE;
        } else {
            opcode(c);
        }
        wait(c);
        if (!last) signal(c);
        if (c.opcode == LORA_CMD_BALLOT) {
            c.body[0] = 0;
            c.body[1] = c.body[2] = 0x1000;
        }
        c.body[12] = index; // says which command a unit was told
        return c;
    }

    Random &random_;
    bool reckless_;
    const test_run *run_ = nullptr;
    uint32_t counters_ = 0, weights_[LORA_UNITS] = {};
    std::vector<uint32_t> totals_;
    std::deque<std::pair<uint32_t, bool>> recent_;
};

// The first command waits for one about as far behind it as the window reaches.
inline List far_list(Random &random) {
    List list;
    uint32_t before = random.below(3), distance = random.between(495, 530);
    lora_command c{};
    c.opcode = LORA_CMD_VECTOR;
    c.unit = LORA_UNIT_VFU;
    c.wait_counter = c.signal_counter = LORA_NO_COUNTER;
    list.commands.assign(before + distance + 2, c);
    list.commands[before].wait_counter = 3;
    list.commands[before].wait_value = 1;
    for (uint32_t i = before + 1; i <= before + distance; i++) {
        list.commands[i].opcode = LORA_CMD_MATRIX;
        list.commands[i].unit = LORA_UNIT_MPU;
    }
    list.commands[before + distance].signal_counter = 3;
    list.commands.back().opcode = LORA_CMD_END;
    list.commands.back().unit = LORA_UNIT_CONTROL;
    list.run.commands = list.commands.data();
    list.run.command_count = static_cast<uint32_t>(list.commands.size());
    list.run.counter_count = 8;
    list.run.rows = 1;
    return list;
}

#endif

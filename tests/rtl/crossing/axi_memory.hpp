// Board memory behind an AXI4 master: takes addresses and answers when it likes, mixes lines of the
// two IDs, and reports an error for lines that the caller names. Words are the caller's.
#ifndef LORA_TEST_AXI_MEMORY_HPP
#define LORA_TEST_AXI_MEMORY_HPP

#include "axi_rules.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <random>

template <class Model> class AxiMemory {
  public:
    // As `Memory` of run_units.hpp: reads have no lanes.
    using Word = std::function<uint32_t(uint64_t address, uint32_t lanes, uint32_t data)>;

    AxiMemory(Model &model, Word word, uint32_t seed)
        : model_(model), word_(std::move(word)), chance_(seed) {}

    std::function<bool(uint64_t line)> bad = [](uint64_t) { return false; };
    uint32_t latency = 8; // cycles, and up to as many more
    uint64_t bursts = 0, writes = 0;

    const std::string &broken() const { return rules_.broken(); }

    // Before an edge of the memory's clock.
    void see() {
        rules_.see(model_);
        cycle_++;
        if (model_.memory_rst) return forget();
        if (model_.m_axi_rvalid && model_.m_axi_rready) read_taken();
        if (model_.m_axi_bvalid && model_.m_axi_bready) answers_.pop_front(), b_held_ = false;
        if (model_.m_axi_arvalid && model_.m_axi_arready) {
            reads_[model_.m_axi_arid].push_back(
                {model_.m_axi_araddr, model_.m_axi_arlen + 1u, later()});
            bursts++;
        }
        if (model_.m_axi_awvalid && model_.m_axi_awready) addresses_.push_back(model_.m_axi_awaddr);
        if (model_.m_axi_wvalid && model_.m_axi_wready) keep_data();
        while (!addresses_.empty() && !data_.empty()) write();
    }

    // Behind it.
    void drive() {
        model_.m_axi_arready = chance_() % 4 != 0;
        model_.m_axi_awready = chance_() % 2;
        model_.m_axi_wready = chance_() % 2;
        if (!b_held_) b_held_ = !answers_.empty() && answers_.front().due <= cycle_;
        model_.m_axi_bvalid = b_held_;
        model_.m_axi_bid = 1;
        model_.m_axi_bresp = b_held_ && answers_.front().bad ? 2 : 0;
        if (!r_held_) choose_line();
        model_.m_axi_rvalid = r_held_;
    }

    void quiet() {
        model_.m_axi_arready = model_.m_axi_awready = model_.m_axi_wready = 0;
        model_.m_axi_rvalid = model_.m_axi_bvalid = 0;
        model_.m_axi_rid = model_.m_axi_rlast = model_.m_axi_rresp = model_.m_axi_bresp = 0;
        model_.m_axi_bid = 1;
    }

  private:
    struct Burst {
        uint64_t address;
        uint32_t left;
        uint64_t due;
    };
    struct Answer {
        bool bad;
        uint64_t due;
    };
    struct Data {
        uint64_t strobe;
        uint32_t words[16];
    };

    uint64_t later() { return cycle_ + latency + chance_() % (latency + 1); }

    void forget() {
        reads_[0].clear();
        reads_[1].clear();
        answers_.clear();
        addresses_.clear();
        data_.clear();
        r_held_ = b_held_ = false;
    }

    void choose_line() {
        uint32_t id = chance_() % 2;
        if (reads_[id].empty() || reads_[id].front().due > cycle_) id = !id;
        if (reads_[id].empty() || reads_[id].front().due > cycle_ || chance_() % 8 == 0) return;
        const Burst &burst = reads_[id].front();
        r_held_ = true;
        model_.m_axi_rid = id;
        model_.m_axi_rlast = burst.left == 1;
        model_.m_axi_rresp = bad(burst.address) ? 2 : 0;
        for (uint32_t i = 0; i < 16; i++)
            model_.m_axi_rdata[i] = word_(burst.address + 4 * i, 0, 0);
    }

    void read_taken() {
        auto &queue = reads_[model_.m_axi_rid];
        queue.front().address += 64;
        if (--queue.front().left == 0) queue.pop_front();
        r_held_ = false;
    }

    void keep_data() {
        Data data{model_.m_axi_wstrb, {}};
        for (uint32_t i = 0; i < 16; i++) data.words[i] = model_.m_axi_wdata[i];
        data_.push_back(data);
    }

    void write() {
        uint64_t address = addresses_.front();
        const Data &data = data_.front();
        bool failed = bad(address);
        for (uint32_t i = 0; i < 16 && !failed; i++) {
            uint32_t lanes = data.strobe >> 4 * i & 0xf;
            if (lanes) word_(address + 4 * i, lanes, data.words[i]);
        }
        answers_.push_back({failed, later()});
        addresses_.pop_front();
        data_.pop_front();
        writes++;
    }

    Model &model_;
    Word word_;
    std::mt19937 chance_;
    MasterRules<Model> rules_;
    std::deque<Burst> reads_[2];
    std::deque<Answer> answers_;
    std::deque<uint64_t> addresses_;
    std::deque<Data> data_;
    bool r_held_ = false, b_held_ = false;
    uint64_t cycle_ = 0;
};

#endif

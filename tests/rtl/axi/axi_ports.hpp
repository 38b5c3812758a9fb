// Board memory behind several AXI4 ports that are packed (m_axi_* of
// overlays/rtl/card/board_memory.sv): takes addresses and answers when it likes, answers what has
// different IDs or ports in any order, and sees whether the masters keep AXI's rules. Lines are the
// caller's.
#ifndef LORA_TEST_AXI_PORTS_HPP
#define LORA_TEST_AXI_PORTS_HPP

#include "../crossing/axi_rules.hpp"
#include "packed_bits.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <vector>

using Line = std::array<uint32_t, 16>;

struct BankRange {
    uint64_t first, bytes;
};

// What a port's master may offer, signal by signal.
template <class Model> class PortRules : public AxiRules {
  public:
    PortRules(uint32_t port, uint32_t units_id) : p_(port), units_id_(units_id) {}

    // Before an edge. `shares`: the control's IDs come here too. `first`, `bytes`: of the bank.
    void see(const Model &m, bool resets, bool shares, uint64_t first, uint64_t bytes) {
        if (resets) {
            ar_.waits = aw_.waits = w_.waits = false;
            return;
        }
        bool ar = packed(m.m_axi_arvalid, p_, 1), aw = packed(m.m_axi_awvalid, p_, 1);
        bool w = packed(m.m_axi_wvalid, p_, 1);
        uint64_t read = packed(m.m_axi_araddr, p_, 64), written = packed(m.m_axi_awaddr, p_, 64);
        uint32_t beats = uint32_t(packed(m.m_axi_arlen, p_, 8));
        uint32_t read_id = uint32_t(packed(m.m_axi_arid, p_, 6)),
                 id = uint32_t(packed(m.m_axi_awid, p_, 6));
        stays(ar_, ar, packed(m.m_axi_arready, p_, 1), {read, beats, read_id},
              "AR changed before it was taken");
        stays(aw_, aw, packed(m.m_axi_awready, p_, 1), {written, packed(m.m_axi_awlen, p_, 8), id},
              "AW changed before it was taken");
        std::array<uint64_t, 10> data{packed(m.m_axi_wstrb, p_, 64), packed(m.m_axi_wlast, p_, 1)};
        for (uint32_t i = 0; i < 8; i++) data[2 + i] = packed(m.m_axi_wdata, 8 * p_ + i, 64);
        stays(w_, w, packed(m.m_axi_wready, p_, 1), data, "W changed before it was taken");
        if (ar) {
            burst(read, beats, uint32_t(packed(m.m_axi_arsize, p_, 3)),
                  uint32_t(packed(m.m_axi_arburst, p_, 2)));
            require(read - first < bytes, "a read of another bank");
            require(read_id == units_id_ || (shares && read_id < 2), "a read with another's ID");
        }
        if (aw) {
            burst(written, uint32_t(packed(m.m_axi_awlen, p_, 8)),
                  uint32_t(packed(m.m_axi_awsize, p_, 3)),
                  uint32_t(packed(m.m_axi_awburst, p_, 2)));
            require(packed(m.m_axi_awlen, p_, 8) == 0, "a write is of more than a line");
            require(written - first < bytes, "a write of another bank");
            require(id >= units_id_ || (shares && id == 1), "a write with another's ID");
        }
        if (w) require(packed(m.m_axi_wlast, p_, 1), "a write of one line has more beats");
    }

  private:
    uint32_t p_, units_id_;
    typename PortRules::template Offer<3> ar_, aw_;
    typename PortRules::template Offer<10> w_;
};

template <class Model> class AxiPorts {
    enum : uint32_t { IDS = 64, UNITS_ID = 32 };

  public:
    // Whether the access fails; reads: no strobe. `units`: it is not the control's.
    using Access = std::function<bool(bool units, uint64_t address, uint64_t strobe, Line &line)>;

    AxiPorts(Model &model, std::vector<BankRange> banks, uint32_t control, Access access,
             uint32_t seed)
        : model_(model), banks_(std::move(banks)), control_(control), access_(std::move(access)),
          chance_(seed) {
        for (uint32_t p = 0; p < banks_.size(); p++) ports_.emplace_back(p);
    }

    bool eager = false;    // takes at once, and answers a cycle later
    uint32_t takes = 1;    // an address in so many cycles
    uint32_t latency = 20; // cycles, and up to as many more
    uint32_t channels = 0; // the first ports are read by channels too, with ID 0
    uint64_t bursts = 0, lines = 0, full = 0, ends_page = 0, writes = 0, errors = 0;
    std::function<void(uint64_t first, uint32_t lines)> on_burst = [](uint64_t, uint32_t) {
    }; // of the units

    std::string broken() const {
        for (const Port &port : ports_)
            if (!port.rules.broken().empty()) return port.rules.broken();
        return "";
    }

    // Before an edge.
    void see(bool resets) {
        cycle_++;
        for (uint32_t p = 0; p < ports_.size(); p++) {
            Port &port = ports_[p];
            port.rules.see(model_, resets, p == control_ || p < channels, banks_[p].first,
                           banks_[p].bytes);
            if (resets) port.forget();
            else see(p, port);
        }
    }

    // Behind it.
    void drive() {
        for (uint32_t p = 0; p < ports_.size(); p++) {
            Port &port = ports_[p];
            pack(model_.m_axi_arready, p, 1, eager || chance_() % takes == 0);
            pack(model_.m_axi_awready, p, 1, eager || chance_() % 2);
            pack(model_.m_axi_wready, p, 1, eager || chance_() % 2);
            if (!port.r_held) choose_line(p, port);
            pack(model_.m_axi_rvalid, p, 1, port.r_held);
            if (!port.b_held) choose_answer(p, port);
            pack(model_.m_axi_bvalid, p, 1, port.b_held);
        }
    }

    void quiet() {
        for (uint32_t p = 0; p < ports_.size(); p++) {
            for (auto signal : {&model_.m_axi_arready, &model_.m_axi_awready, &model_.m_axi_wready,
                                &model_.m_axi_rvalid, &model_.m_axi_bvalid})
                pack(*signal, p, 1, 0);
        }
    }

  private:
    struct Burst {
        uint64_t address;
        uint32_t left;
        uint64_t due;
    };
    struct Answer {
        bool failed;
        uint64_t due;
    };
    struct Data {
        uint64_t strobe;
        Line line;
    };
    struct Port {
        explicit Port(uint32_t number) : rules(number, UNITS_ID) {}
        void forget() {
            for (auto &queue : reads) queue.clear();
            for (auto &queue : answers) queue.clear();
            addresses.clear();
            data.clear();
            r_held = b_held = false;
        }
        PortRules<Model> rules;
        std::deque<Burst> reads[IDS];
        std::deque<Answer> answers[IDS];
        std::deque<std::pair<uint64_t, uint32_t>> addresses;
        std::deque<Data> data;
        bool r_held = false, b_held = false;
        uint32_t r_id = 0, b_id = 0;
    };

    uint64_t later() { return eager ? cycle_ + 1 : cycle_ + latency + chance_() % (latency + 1); }

    void see(uint32_t p, Port &port) {
        const Model &m = model_;
        if (packed(m.m_axi_rvalid, p, 1) && packed(m.m_axi_rready, p, 1)) line_taken(port);
        if (packed(m.m_axi_bvalid, p, 1) && packed(m.m_axi_bready, p, 1)) {
            port.answers[port.b_id].pop_front();
            port.b_held = false;
        }
        if (packed(m.m_axi_arvalid, p, 1) && packed(m.m_axi_arready, p, 1)) burst_taken(p, port);
        if (packed(m.m_axi_awvalid, p, 1) && packed(m.m_axi_awready, p, 1))
            port.addresses.emplace_back(packed(m.m_axi_awaddr, p, 64), packed(m.m_axi_awid, p, 6));
        if (packed(m.m_axi_wvalid, p, 1) && packed(m.m_axi_wready, p, 1)) {
            Data data{packed(m.m_axi_wstrb, p, 64), {}};
            for (uint32_t i = 0; i < 16; i++)
                data.line[i] = uint32_t(packed(m.m_axi_wdata, 16 * p + i, 32));
            port.data.push_back(data);
        }
        while (!port.addresses.empty() && !port.data.empty()) write(port);
    }

    void burst_taken(uint32_t p, Port &port) {
        uint64_t address = packed(model_.m_axi_araddr, p, 64);
        uint32_t count = uint32_t(packed(model_.m_axi_arlen, p, 8)) + 1;
        uint32_t id = uint32_t(packed(model_.m_axi_arid, p, 6));
        port.reads[id].push_back({address, count, later()});
        if (id != UNITS_ID) return;
        bursts++;
        lines += count;
        full += count == 16;
        ends_page += count > 1 && (address + 64 * count) % 4096 == 0;
        on_burst(address, count);
    }

    void write(Port &port) {
        auto [address, id] = port.addresses.front();
        Data &data = port.data.front();
        bool failed = access_(id >= UNITS_ID, address, data.strobe, data.line);
        errors += failed;
        port.answers[id].push_back({failed, later()});
        port.addresses.pop_front();
        port.data.pop_front();
        writes++;
    }

    // An ID whose first entry is due, any of them.
    template <class Queue> uint32_t due(const Queue (&queues)[IDS]) {
        uint32_t from = chance_() % IDS;
        for (uint32_t i = 0; i < IDS; i++) {
            uint32_t id = (from + i) % IDS;
            if (!queues[id].empty() && queues[id].front().due <= cycle_) return id;
        }
        return IDS;
    }

    void choose_line(uint32_t p, Port &port) {
        uint32_t id = due(port.reads);
        if (id == IDS || (!eager && chance_() % 8 == 0)) return;
        const Burst &burst = port.reads[id].front();
        port.r_held = true;
        port.r_id = id;
        Line line;
        bool failed = access_(id >= UNITS_ID, burst.address, 0, line);
        errors += failed;
        pack(model_.m_axi_rid, p, 6, id);
        pack(model_.m_axi_rlast, p, 1, burst.left == 1);
        pack(model_.m_axi_rresp, p, 2,
             failed ? 2 + chance_() % 2 : chance_() % 2); // SLVERR, DECERR; OKAY, EXOKAY
        for (uint32_t i = 0; i < 16; i++) pack(model_.m_axi_rdata, 16 * p + i, 32, line[i]);
    }

    void line_taken(Port &port) {
        auto &queue = port.reads[port.r_id];
        queue.front().address += 64;
        if (--queue.front().left == 0) queue.pop_front();
        port.r_held = false;
    }

    void choose_answer(uint32_t p, Port &port) {
        uint32_t id = due(port.answers);
        if (id == IDS) return;
        port.b_held = true;
        port.b_id = id;
        pack(model_.m_axi_bid, p, 6, id);
        pack(model_.m_axi_bresp, p, 2, port.answers[id].front().failed ? 2 + chance_() % 2 : 0);
    }

    Model &model_;
    std::vector<BankRange> banks_;
    uint32_t control_;
    Access access_;
    std::mt19937 chance_;
    std::vector<Port> ports_;
    uint64_t cycle_ = 0;
};

#endif

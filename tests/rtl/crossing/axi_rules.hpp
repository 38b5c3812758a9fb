// Rules of AXI that a master keeps: what it offers stays until it is taken, bursts are lines of 64
// bytes, do not cross 4 KiB and are no longer than a chunk, and nothing is offered in reset. Of an
// AXI4-Lite slave: an answer stays until it is taken, and there is one for each access.
#ifndef LORA_TEST_AXI_RULES_HPP
#define LORA_TEST_AXI_RULES_HPP

#include <array>
#include <cstdint>
#include <string>

class AxiRules {
  public:
    const std::string &broken() const { return broken_; }

  protected:
    void require(bool holds, const char *rule) {
        if (!holds && broken_.empty()) broken_ = rule;
    }

    // One channel: `payload` may not change while an offer is not taken.
    template <size_t N> struct Offer {
        bool waits = false;
        std::array<uint64_t, N> payload{};
    };

    template <size_t N>
    void stays(Offer<N> &last, bool valid, bool ready, const std::array<uint64_t, N> &payload,
               const char *rule) {
        if (last.waits) require(valid && payload == last.payload, rule);
        last.waits = valid && !ready;
        last.payload = payload;
    }

    void burst(uint64_t address, uint32_t beats, uint32_t size, uint32_t kind) {
        require(address % 64 == 0, "a burst does not begin at a line");
        require(size == 6 && kind == 1, "a burst is not INCR in lines of 64 bytes");
        require(beats < 16, "a burst is longer than 16 lines");
        require(address / 4096 == (address + 64 * beats) / 4096, "a burst crosses 4 KiB");
    }

  private:
    std::string broken_;
};

template <class Model> class MasterRules : public AxiRules {
  public:
    // Before an edge of the memory's clock.
    void see(const Model &m) {
        if (m.memory_rst) {
            ar_.waits = aw_.waits = w_.waits = false;
            return;
        }
        stays(ar_, m.m_axi_arvalid, m.m_axi_arready, {m.m_axi_araddr, m.m_axi_arlen, m.m_axi_arid},
              "AR changed before it was taken");
        stays(aw_, m.m_axi_awvalid, m.m_axi_awready, {m.m_axi_awaddr, m.m_axi_awlen, m.m_axi_awid},
              "AW changed before it was taken");
        std::array<uint64_t, 10> data{m.m_axi_wstrb, m.m_axi_wlast};
        for (uint32_t i = 0; i < 8; i++)
            data[2 + i] = uint64_t(m.m_axi_wdata[2 * i + 1]) << 32 | m.m_axi_wdata[2 * i];
        stays(w_, m.m_axi_wvalid, m.m_axi_wready, data, "W changed before it was taken");
        if (m.m_axi_arvalid) burst(m.m_axi_araddr, m.m_axi_arlen, m.m_axi_arsize, m.m_axi_arburst);
        if (m.m_axi_awvalid) burst(m.m_axi_awaddr, m.m_axi_awlen, m.m_axi_awsize, m.m_axi_awburst);
        if (m.m_axi_wvalid) require(m.m_axi_wlast, "a write of one line has more beats");
        if (m.m_axi_wvalid)
            require(m.m_axi_wstrb != 0 && (m.m_axi_wstrb & (m.m_axi_wstrb >> 4)) == 0,
                    "a write is not of one word");
    }

  private:
    Offer<3> ar_, aw_;
    Offer<10> w_;
};

template <class Model> class LiteRules : public AxiRules {
  public:
    // Before an edge of the shell's clock.
    void see(const Model &m) {
        if (m.host_rst) {
            b_.waits = r_.waits = false;
            addresses_ = writes_ = reads_ = 0;
            return;
        }
        stays(b_, m.s_axi_control_bvalid, m.s_axi_control_bready, {m.s_axi_control_bresp},
              "B changed before it was taken");
        stays(r_, m.s_axi_control_rvalid, m.s_axi_control_rready,
              {m.s_axi_control_rdata, m.s_axi_control_rresp}, "R changed before it was taken");
        if (m.s_axi_control_bvalid) require(addresses_ && writes_, "B without a write");
        if (m.s_axi_control_rvalid) require(reads_, "R without a read");
        if (m.s_axi_control_bvalid && m.s_axi_control_bready) addresses_--, writes_--;
        if (m.s_axi_control_rvalid && m.s_axi_control_rready) reads_--;
        addresses_ += m.s_axi_control_awvalid && m.s_axi_control_awready;
        writes_ += m.s_axi_control_wvalid && m.s_axi_control_wready;
        reads_ += m.s_axi_control_arvalid && m.s_axi_control_arready;
    }

  private:
    Offer<1> b_;
    Offer<2> r_;
    int64_t addresses_ = 0, writes_ = 0, reads_ = 0;
};

#endif

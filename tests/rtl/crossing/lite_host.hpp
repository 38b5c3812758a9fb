// The host before an AXI4-Lite slave: one access at a time, address and data when they come.
#ifndef LORA_TEST_LITE_HOST_HPP
#define LORA_TEST_LITE_HOST_HPP

#include "axi_rules.hpp"

#include <cstdint>
#include <random>

template <class Model> class LiteHost {
  public:
    LiteHost(Model &model, uint32_t seed) : model_(model), chance_(seed) {}

    const std::string &broken() const { return rules_.broken(); }
    uint32_t data = 0, response = 0; // of the last access

    void ask(uint32_t address, bool write, uint32_t value, uint32_t strobe = 0xf) {
        address_ = address;
        write_ = write;
        value_ = value;
        strobe_ = strobe;
        needs_address_ = true;
        needs_data_ = write;
        pending_ = true;
    }
    bool pending() const { return pending_; }

    // Before an edge of the shell's clock.
    void see() {
        rules_.see(model_);
        if (model_.host_rst) {
            pending_ = needs_address_ = needs_data_ = false;
            offered_ = offered_data_ = false;
            return;
        }
        if (model_.s_axi_control_arvalid && model_.s_axi_control_arready) address_taken();
        if (model_.s_axi_control_awvalid && model_.s_axi_control_awready) address_taken();
        if (model_.s_axi_control_wvalid && model_.s_axi_control_wready)
            needs_data_ = offered_data_ = false;
        if (model_.s_axi_control_rvalid && model_.s_axi_control_rready) {
            data = model_.s_axi_control_rdata;
            response = model_.s_axi_control_rresp;
            pending_ = false;
        }
        if (model_.s_axi_control_bvalid && model_.s_axi_control_bready) {
            response = model_.s_axi_control_bresp;
            pending_ = false;
        }
    }

    // Behind it.
    void drive() {
        if (needs_address_) offered_ = offered_ || chance_() % 2;
        if (needs_data_) offered_data_ = offered_data_ || chance_() % 2;
        model_.s_axi_control_arvalid = offered_ && !write_;
        model_.s_axi_control_awvalid = offered_ && write_;
        model_.s_axi_control_araddr = model_.s_axi_control_awaddr = address_;
        model_.s_axi_control_wvalid = offered_data_;
        model_.s_axi_control_wdata = value_;
        model_.s_axi_control_wstrb = strobe_;
        model_.s_axi_control_rready = chance_() % 2;
        model_.s_axi_control_bready = chance_() % 2;
    }

    void quiet() {
        model_.s_axi_control_arvalid = model_.s_axi_control_awvalid = 0;
        model_.s_axi_control_wvalid = 0;
        model_.s_axi_control_rready = model_.s_axi_control_bready = 0;
    }

  private:
    void address_taken() { needs_address_ = offered_ = false; }

    Model &model_;
    std::mt19937 chance_;
    LiteRules<Model> rules_;
    uint32_t address_ = 0, value_ = 0, strobe_ = 0xf;
    bool write_ = false, needs_address_ = false, needs_data_ = false, pending_ = false;
    bool offered_ = false, offered_data_ = false;
};

#endif

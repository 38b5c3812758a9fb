// A card with its clock, memory and links.
#ifndef LORA_SIM_CARD_HPP
#define LORA_SIM_CARD_HPP

#include "VCard.h"
#include "VCard___024root.h"
#include "verilated.h"

#include "channel_memory.hpp"
#include "command_times.hpp"
#include "control_memory.hpp"
#include "kv_memory.hpp"
#include "line_memory.hpp"
#include "links.hpp"

#include <memory>
#include <vector>

class Card {
    enum : uint32_t { RESET_CYCLES = 2, CLEAR_CYCLES = 300 };

  public:
    // A write of the control to a register of the host, by bytes.
    struct Store {
        uint32_t word, bytes, value;
    };

    Card(const CardMemory &memory, Timing &timing, uint32_t kind, uint32_t serial)
        : words_(memory, timing), lists_(memory, timing), banks_(timing.config),
          lines_(memory, timing, banks_), channels_(memory, timing, banks_),
          pages_(memory, timing, banks_), links_(timing), times_(timing.config, serial) {
        context_.threads(1);
        context_.randReset(2); // registers begin with any bits
        context_.randSeed(static_cast<int>(timing.config.seed & 0x7fffffff) | 1);
        card_ = std::make_unique<VCard>(&context_);
        card_->rst = card_->restart = 1;
        card_->load_valid = card_->host_valid = 0;
        card_->identity[0] = kind;
        card_->identity[1] = serial;
        card_->identity[2] = 0;
        card_->kv_line_valid = 0;
    }

    // The model's end is of the thread's context, which would be that of the last card that this
    // thread has simulated; and that one may be no more.
    ~Card() {
        Verilated::threadContextp(&context_);
        card_.reset();
        Verilated::threadContextp(Verilated::defaultContextp());
    }
    Card(const Card &) = delete;
    Card &operator=(const Card &) = delete;

    // After a reset, with its code in local memory.
    void begin(const std::vector<uint8_t> &code) {
        for (uint32_t i = 0; i < RESET_CYCLES; i++) clock();
        card_->rst = 0;
        clock();
        card_->load_valid = 1;
        card_->load_write = 0xf;
        for (size_t at = 0; at < code.size(); at += 4) load_word(code, at);
        card_->load_valid = card_->restart = 0;
        for (uint32_t i = 0; i < CLEAR_CYCLES; i++) clock(); // of the host's registers
        stores_.clear();
    }

    void clock() {
        VCard &c = *card_;
        c.clk = 0;
        words_.drive(c, time_);
        lists_.drive(c, time_);
        lines_.drive(c, time_);
        channels_.drive(c, time_);
        pages_.drive(c, time_);
        links_.drive(c, time_);
        c.eval();
        if (links_.let_poison(c, time_)) c.eval();
        if (!c.rst) {
            words_.see(c, time_);
            lists_.see(c, time_);
            lines_.see(c, time_);
            channels_.see(c, time_);
            pages_.see(c, time_);
            links_.see(c, time_);
            see_store(c);
            times_.see(c, cycle_);
        }
        c.clk = 1;
        c.eval();
        pages_.after(c);
        cycle_++;
        time_++;
    }

    void host_write(uint32_t word, uint32_t value) { host(word, true, value); }
    void host_read(uint32_t word) { host(word, false, 0); }

    bool done() const { return card_->done; }
    bool stopped() const { return card_->stopped; }
    uint64_t cycle() const { return cycle_; }
    // The board's time from now on.
    void set_time(uint64_t time) { time_ = time; }
    Links &links() { return links_; }
    CommandTimes &times() { return times_; }
    std::vector<Store> &stores() { return stores_; }

  private:
    void load_word(const std::vector<uint8_t> &code, size_t at) {
        uint32_t value = 0;
        std::memcpy(&value, &code[at], code.size() - at < 4 ? code.size() - at : 4);
        card_->load_word = static_cast<uint32_t>(at / 4);
        card_->load_stored = value;
        card_->eval();
        while (!card_->load_ready) clock();
        clock();
    }

    void host(uint32_t word, bool write, uint32_t value) {
        card_->host_valid = 1;
        card_->host_write = write;
        card_->host_word = static_cast<uint16_t>(word);
        card_->host_stored = value;
        clock();
        card_->host_valid = 0;
    }

    void see_store(const VCard &c) {
        const auto &seen = *c.rootp;
        uint32_t bytes = seen.card__DOT__its_control__DOT__core__DOT__register_file__DOT__write;
        if (!bytes) return;
        stores_.push_back(
            {seen.card__DOT__its_control__DOT__core__DOT__register_file__DOT__word, bytes,
             seen.card__DOT__its_control__DOT__core__DOT__register_file__DOT__stored});
    }

    WordMemory words_;
    ListMemory lists_;
    Banks banks_;
    LineMemory lines_;
    ChannelMemory channels_;
    KvMemory pages_;
    Links links_;
    CommandTimes times_;
    VerilatedContext context_;
    std::unique_ptr<VCard> card_;
    std::vector<Store> stores_;
    uint64_t cycle_ = 0, time_ = 0;
};

#endif

// A simulated card as the control of an emulated board: the host's registers are the emulated
// board's, and what either side writes is told the other.
#ifndef LORA_SIM_BOARD_HPP
#define LORA_SIM_BOARD_HPP

#include "card.hpp"

class Board {
    enum : uint32_t { BOOT_CYCLES = 3000, LOCAL_BYTES = 1u << 17 };

  public:
    Board(const lora_sim_config &config, const lora_board_calls &calls, uint32_t number)
        : config_(seeded(config, number)), calls_(calls), timing_(config_),
          memory_(calls, registers_) {}

    bool load(const uint8_t *code, uint64_t bytes) {
        if (bytes > LOCAL_BYTES) return false;
        code_.assign(code, code + bytes);
        return true;
    }

    void begin() {
        if (card_) past_ += card_->cycle();
        card_.reset();
        runs_ = false;
    }

    // No cycle passes while the host wants nothing.
    uint32_t poll() {
        if (!runs_ && !(calls_.get_register(LORA_REG_AP_CTRL) & LORA_AP_START)) return LORA_FW_IDLE;
        if (!card_) start();
        uint64_t from = card_->cycle();
        bool ran = false;
        card_->set_time(calls_.time());
        take_registers();
        for (ran = runs_; card_->cycle() - from < config_.slice && !card_->stopped();) {
            cycle();
            if (ran && !runs_) break;
        }
        uint64_t passed = card_->cycle() - from;
        calls_.pass(passed);
        if (ran) busy_ += passed;
        if (card_->stopped()) return LORA_FW_WAITING;
        return runs_ ? LORA_FW_RUNNING : ran ? LORA_FW_DONE : LORA_FW_IDLE;
    }

    void send() {
        if (card_) card_->links().send(calls_);
    }
    void take() {
        if (card_) card_->links().take(calls_);
    }

    lora_sim_counts counts() const { return {past_ + (card_ ? card_->cycle() : 0), busy_}; }

  private:
    static lora_sim_config seeded(lora_sim_config config, uint32_t number) {
        if (config.seed) config.seed += number;
        return config;
    }

    void start() {
        std::memset(registers_, 0, sizeof registers_);
        card_ = std::make_unique<Card>(memory_, timing_,
                                       calls_.get_register(LORA_REG_IDENTITY_BOARD),
                                       calls_.get_register(LORA_REG_IDENTITY_SERIAL));
        card_->links().take(calls_);
        card_->begin(code_);
        for (uint32_t i = LORA_REG_ARENAS / 4; i < CardMemory::REGISTERS; i++)
            card_->host_write(i, 0);
        for (uint32_t i = 0; i < BOOT_CYCLES; i++) cycle();
    }

    void cycle() {
        card_->clock();
        for (const Card::Store &store : card_->stores()) give_register(store);
        card_->stores().clear();
    }

    static bool host_writes(uint32_t offset) {
        return (offset != LORA_REG_AP_CTRL && offset < LORA_REG_IDENTITY_ABI) ||
               offset == LORA_REG_WATCHDOG_MS || offset == LORA_REG_TOKEN ||
               offset == LORA_REG_CANCEL || offset >= LORA_REG_ARENAS;
    }

    // What the host has written since, that it has read the done bit, then its start.
    void take_registers() {
        for (uint32_t i = 0; i < CardMemory::REGISTERS; i++) {
            uint32_t value = calls_.get_register(4 * i);
            if (!host_writes(4 * i) || value == registers_[i]) continue;
            registers_[i] = value;
            card_->host_write(i, 4 * i == LORA_REG_WATCHDOG_MS ? watchdog(value) : value);
        }
        if (runs_) return;
        uint32_t control = calls_.get_register(LORA_REG_AP_CTRL);
        if (card_->done() && !(control & LORA_AP_DONE)) card_->host_read(LORA_REG_AP_CTRL / 4);
        if (!(control & LORA_AP_START)) return;
        card_->links().look(calls_);
        card_->times().operation(card_->cycle(), false);
        card_->host_write(LORA_REG_AP_CTRL / 4, LORA_AP_START);
        runs_ = true;
    }

    // The card counts milliseconds of a clock of its own.
    uint32_t watchdog(uint32_t ms) const {
        uint64_t cycles = static_cast<uint64_t>(ms) * config_.cycles_per_ms;
        uint64_t found = (cycles + CARD_CYCLES_PER_MS - 1) / CARD_CYCLES_PER_MS;
        return found < ~0u ? static_cast<uint32_t>(found) : ~0u;
    }

    // A start that the card has not had yet stays.
    void give_register(const Card::Store &store) {
        if (store.word >= CardMemory::REGISTERS) return;
        uint32_t offset = 4 * store.word, mask = 0;
        for (uint32_t lane = 0; lane < 4; lane++)
            if (store.bytes >> lane & 1) mask |= 0xffu << 8 * lane;
        uint32_t value = (registers_[store.word] & ~mask) | (store.value & mask);
        bool control = offset == LORA_REG_AP_CTRL;
        if (control) value &= 0xf;
        if (control && !runs_) return;
        registers_[store.word] = value;
        calls_.set_register(offset, value);
        if (!control || !(value & LORA_AP_DONE)) return;
        card_->times().operation(card_->cycle(), true);
        runs_ = false;
    }

    const lora_sim_config config_;
    const lora_board_calls &calls_;
    Timing timing_;
    uint32_t registers_[CardMemory::REGISTERS] = {}; // as the card has them
    CardMemory memory_;
    std::vector<uint8_t> code_;
    std::unique_ptr<Card> card_;
    bool runs_ = false; // an operation
    uint64_t past_ = 0, busy_ = 0;
};

#endif

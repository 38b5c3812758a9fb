// A simulated DMA unit with its memory: what the sequencer tells it, and what it tells.
#ifndef DMA_CARD_HPP
#define DMA_CARD_HPP

#include "memory.hpp"

#include <memory>

struct Job { // what the unit is told
    lora_command command{};
    lora_list list{};
    lora_step_state state{};
};

struct Outcome {
    uint32_t state, status, value;
    uint64_t cycles;
};

class Card {
  public:
    std::unique_ptr<VDma> unit;
    std::unique_ptr<Memory> memory;

    Card(VerilatedContext &context, Banks &banks, Behavior behavior, Random &random)
        : unit(std::make_unique<VDma>(&context)), random_(random) {
        memory = std::make_unique<Memory>(*unit, banks, behavior, random);
        unit->unit_announce = unit->unit_start = unit->unit_abort = unit->result_ready = 0;
        unit->arena_write = unit->line_valid = unit->line_error = 0;
        unit->write_open = unit->write_error = 0;
        scramble();
        unit->clk = 0;
        unit->rst = 1;
        unit->eval();
        edge();
        unit->rst = 0;
        arenas_ = &banks.arenas;
        onchip_bytes_ = static_cast<uint32_t>(banks.bytes.at(LORA_BANK_ONCHIP).size());
        for (const Arena &arena : banks.arenas)
            if (arena.bank == LORA_BANK_ONCHIP) onchip_bytes_ = static_cast<uint32_t>(arena.bytes);
        tell_arenas();
    }
    ~Card() { unit->final(); }

    // Between two edges: what is to happen at the next one.
    void announce(const Job &job) {
        std::memcpy(&unit->unit_line[0], &job.command, sizeof job.command);
        unit->unit_announce = 1;
    }
    void start(const Job &job) {
        job_ = &job;
        hold(job);
        unit->unit_start = 1;
        memory->go();
    }
    void abort() { unit->unit_abort = 1; }
    void reset() { unit->rst = 1; }

    void cycle() {
        if (unit->rst) memory->reset();
        else memory->drive();
        unit->eval();
        uint32_t row = unit->row;
        bool stops = unit->unit_abort || unit->rst;
        bool resets = unit->rst;
        edge();
        if (stops) memory->stop();
        unit->unit_announce = unit->unit_start = unit->unit_abort = unit->rst = unit->arena_write =
            0;
        unit->result_ready = 0;
        unit->row_slot = job_ ? static_cast<uint32_t>(job_->state.rows[row].slot) : noise();
        unit->row_selected = job_ ? job_->state.selected[row] : static_cast<uint16_t>(noise());
        if (stops) { // nothing of a command is held any more
            job_ = nullptr;
            scramble();
        }
        if (resets) tell_arenas();
    }

    void wait_idle() {
        for (int i = 0; !unit->unit_idle; i++) {
            if (i > 4000) throw std::runtime_error("the unit is not idle behind an abort");
            if (unit->result_valid) throw std::runtime_error("a result behind an abort");
            cycle();
        }
        if (!memory->idle()) throw std::runtime_error("idle, with memory under way");
    }

    // To the result, or until `cycles` are over (0: none): false, the command still runs.
    bool run(const Job &job, uint64_t cycles, Outcome &outcome) {
        bool both = random_.once_in(2);
        announce(job);
        if (!both) cycle();
        start(job);
        if (!both)
            for (int word = 0; word < 16; word++) unit->unit_line[word] = noise();
        uint64_t quiet = 0, count = 0;
        for (; !unit->result_valid; count++) {
            if (cycles && count == cycles) return false;
            if (quiet++ > 30000) throw std::runtime_error("the unit hangs");
            if (unit->read_valid || unit->write_valid) quiet = 0;
            if (count > 0 && random_.once_in(50)) { // of the next one, whatever it is
                unit->unit_line[random_.below(16)] = noise();
                unit->unit_announce = 1;
            }
            cycle();
        }
        if (cycles && count == cycles) return false;
        while (random_.once_in(2)) cycle();
        if (!unit->result_valid) throw std::runtime_error("a result is taken back");
        if (!memory->idle())
            throw std::runtime_error("a result, with memory under way: " + memory->what() +
                                     " cycle " + std::to_string(count) + " status " +
                                     std::to_string(unit->result_status));
        outcome = {unit->result_state, unit->result_status, unit->result_value, count};
        unit->result_ready = 1;
        cycle();
        if (unit->result_valid) throw std::runtime_error("a result is there twice");
        job_ = nullptr;
        scramble();
        return true;
    }

  private:
    uint32_t noise() { return static_cast<uint32_t>(random_.next()); }

    void edge() {
        unit->clk = 1;
        unit->eval();
        unit->clk = 0;
        unit->eval();
    }

    void hold(const Job &job) {
        const lora_list &list = job.list;
        const lora_step_state &state = job.state;
        unit->onchip_bytes = onchip_bytes_;
        unit->kv_type = list.kv_type;
        unit->head_dim = list.head_dim;
        unit->kv_layers = list.kv_layers;
        unit->kv_heads_count = list.kv_heads;
        unit->page_count = list.page_count;
        unit->kv_bank_first = list.kv_bank_first;
        unit->kv_bank_count = list.kv_bank_count;
        unit->kv_line = list.kv_line;
        unit->spill_page = list.kv_spill_page;
        unit->spill_bank_first = list.kv_spill_bank_first;
        unit->spill_bank_count = list.kv_spill_bank_count;
        unit->spill_line = list.kv_spill_line;
        unit->control_bank = list.control_bank;
        unit->table_bank = list.table_bank;
        unit->table_line = list.table_line;
        unit->max_scratch = list.max_scratch;
        unit->max_sequences = list.max_sequences;
        unit->max_tiles = list.max_tiles;
        unit->row_count = state.row_count;
        unit->selected_count = state.selected_count;
        unit->op_count = state.kv_op_count;
        unit->ops_offset = state.kv_ops_offset;
        unit->path_count = state.path_count;
        unit->path_offset = state.path_offset;
    }

    // Inputs that nothing holds.
    void scramble() {
        Job job;
        auto *bytes = reinterpret_cast<uint8_t *>(&job.list);
        for (size_t i = 0; i < sizeof job.list; i++) bytes[i] = static_cast<uint8_t>(noise());
        job.state.row_count = noise();
        job.state.selected_count = noise();
        job.state.kv_op_count = noise();
        job.state.kv_ops_offset = noise();
        job.state.path_count = noise();
        job.state.path_offset = noise();
        job.list.page_count &= 0x1ffff;
        hold(job);
    }

    void write_register(uint32_t offset, uint32_t value) {
        unit->arena_write = 1;
        unit->arena_word = static_cast<uint16_t>(offset / 4);
        unit->arena_stored = value;
        cycle();
    }

    // As the host does it: records in any order, some of which hold no more, and some behind the
    // count.
    void tell_arenas() {
        std::vector<lora_arena_record> records;
        for (const Arena &arena : *arenas_) {
            if (arena.bank == LORA_BANK_ONCHIP) continue;
            records.push_back({noise(), arena.offset, arena.bytes, arena.bank, 1});
            if (random_.once_in(3)) records.push_back({0, 0, 1 << 24, arena.bank, 0});
            if (random_.once_in(6)) records.push_back({0, 0, 1 << 24, arena.bank + 64, 1});
            if (random_.once_in(6)) records.push_back({0, 1ull << 38, 1 << 24, arena.bank, 1});
        }
        for (size_t i = records.size(); i > 1; i--)
            std::swap(records[i - 1], records[random_.below(i)]);
        size_t count = records.size();
        records.push_back({0, 0, 1 << 24, 0, 1});
        for (size_t i = 0; i < records.size(); i++)
            for (uint32_t word = 0; word < sizeof records[i] / 4; word++) {
                uint32_t value;
                std::memcpy(&value, reinterpret_cast<uint8_t *>(&records[i]) + 4 * word, 4);
                write_register(
                    static_cast<uint32_t>(LORA_REG_ARENAS + i * sizeof records[i] + 4 * word),
                    value);
            }
        write_register(LORA_REG_ARENA_COUNT, static_cast<uint32_t>(count));
    }

    Random &random_;
    const Job *job_ = nullptr;
    const std::vector<Arena> *arenas_ = nullptr;
    uint32_t onchip_bytes_ = 0;
};

#endif

// A list of matmuls through the sequencer, each behind a command of the vector unit that brings its
// x: the array is told of a matmul while its x is not there yet, started when it is, and a run is
// ended in the middle.
//   bench FILE SEED BUSY   reads what tests/rtl/sequenced_rig.py has written, writes FILE.banks
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include <verilated.h>

#include "VSequenced.h"
#include "checked_ports.hpp"
extern "C" {
uint32_t fw_seal(const void *data, uint32_t words);
}

namespace {

[[noreturn]] void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

constexpr uint32_t MPU = LORA_UNIT_MPU, VFU = LORA_UNIT_VFU;

struct Piece { // of on-chip memory, that a vector command writes
    uint32_t offset;
    std::vector<uint8_t> bytes;
};

class Case {
  public:
    explicit Case(const char *path) : file_(path, std::ios::binary) {
        rows = word(), counters = word(), bank_bytes = word();
        for (uint32_t count = word(); count--;) {
            uint32_t bank = word();
            banks[bank].resize(bank_bytes);
            file_.read(reinterpret_cast<char *>(banks[bank].data()), bank_bytes);
        }
        commands.resize(word());
        file_.read(reinterpret_cast<char *>(commands.data()),
                   static_cast<std::streamsize>(commands.size() * LORA_LINE_BYTES));
        pieces.resize(word());
        for (Piece &piece : pieces) {
            piece.offset = word();
            piece.bytes.resize(word());
            file_.read(reinterpret_cast<char *>(piece.bytes.data()),
                       static_cast<std::streamsize>(piece.bytes.size()));
        }
        if (!file_) fail("%s is cut short", path);
    }

    uint32_t rows, counters, bank_bytes;
    std::map<uint32_t, std::vector<uint8_t>> banks;
    std::vector<lora_command> commands;
    std::vector<Piece> pieces;

  private:
    uint32_t word() {
        uint32_t value = 0;
        file_.read(reinterpret_cast<char *>(&value), sizeof value);
        return value;
    }
    std::ifstream file_;
};

class Board {
  public:
    Board(Case &it, uint32_t seed, uint32_t busy) : case_(it), random_(seed), busy_(busy) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        model_ = std::make_unique<VSequenced>(&context_);
        for (auto &bank : case_.banks) {
            call_banks_[bank.first] = bank.second.data();
            call_bytes_[bank.first] = bank.second.size();
        }
        call_.banks = call_banks_;
        call_.bank_bytes = call_bytes_;
        memory_ = std::make_unique<DisturbedMemory>(&call_, MemoryKind::BANKS, 0);
        VSequenced &s = *model_;
        s.clk = s.start = s.give_up = s.seal_write = s.r_valid = s.line_valid = 0;
        s.result_valid = 0;
        s.idle = (1u << LORA_UNITS) - 1;
        s.rows = static_cast<uint8_t>(case_.rows);
        s.onchip_bytes = case_.bank_bytes;
        s.command_count = static_cast<uint16_t>(case_.commands.size());
        s.counter_count = static_cast<uint16_t>(case_.counters);
        s.rst = 1;
        s.eval();
        edge();
        s.rst = 0;
        for (uint32_t i = 0; i < 40; i++) edge();
        ports();
        seal();
    }
    ~Board() { model_->final(); }

    // From start to END, or to an abort at any cycle.
    void run(bool ended) {
        VSequenced &s = *model_;
        uint64_t until = random_.below(6000), cycle = 0;
        next_piece_ = 0;
        told_vector_ = runs_vector_ = false;
        s.start = 1;
        step();
        s.start = 0;
        for (; s.busy; cycle++) {
            if (ended && cycle == until) {
                aborts_told += s.array_told;
                aborts++;
                aborts_with_reads += ports_->under_way() > 0;
                s.give_up = 1;
                ports_stop_ = true;
            }
            step();
            s.give_up = 0;
            if (cycle > 200000) fail("the run does not end");
        }
        if (ended) {
            if (ports_->under_way()) fail("not busy, but the array's reads are under way");
            ports();
        } else if (s.failed) fail("the run fails");
    }

    uint64_t aborts = 0, aborts_told = 0, aborts_with_reads = 0, told_cycles = 0, read_early = 0;

  private:
    void ports() {
        static const uint32_t latencies[] = {1, 5, 25, 100};
        Behavior behavior{latencies[random_.below(4)], random_.below(60), busy_};
        ports_ = std::make_unique<CheckedPorts<VSequenced>>(*model_, *memory_, behavior, random_);
        ports_stop_ = false;
    }

    void edge() {
        model_->clk = 1;
        model_->eval();
        model_->clk = 0;
        model_->eval();
    }

    void seal() {
        const auto &commands = case_.commands;
        for (uint32_t at = 0; at < commands.size(); at += LORA_CHUNK_COMMANDS) {
            uint32_t left = std::min<uint32_t>(LORA_CHUNK_COMMANDS,
                                               static_cast<uint32_t>(commands.size()) - at);
            model_->seal_write = 1;
            model_->seal_where = static_cast<uint16_t>(at / LORA_CHUNK_COMMANDS);
            model_->seal_data = fw_seal(&commands[at], left * LORA_LINE_BYTES / 4);
            edge();
        }
        model_->seal_write = 0;
    }

    void step() {
        VSequenced &s = *model_;
        list_port();
        vector_unit();
        s.eval();
        ports_->drive();
        told_cycles += s.array_told;
        if (s.array_told) {
            read_early += s.read_valid && s.read_ready;
            if (s.write_valid) fail("a write of a command that is only announced");
        }
        if (ports_stop_ && s.unit_abort) ports_->stop();
        if (!ports_->error().empty()) fail("%s", ports_->error().c_str());
        s.eval();
        bool asks = s.ar_valid && s.ar_ready, takes = s.r_valid && s.r_ready;
        bool ends = s.result_valid >> VFU & 1 && s.result_ready >> VFU & 1;
        bool starts = s.unit_start >> VFU & 1, tells = s.unit_announce >> VFU & 1;
        bool aborted = s.unit_abort;
        if (asks) list_at_ = s.ar_line, list_left_ = s.ar_beats + 1u, list_due_ = random_.below(80);
        if (takes) list_at_++, list_left_--;
        edge();
        if (ends) runs_vector_ = false;
        if (tells) told_vector_ = true;
        if (starts) {
            if (!told_vector_) fail("the vector unit is started without a command");
            told_vector_ = false, runs_vector_ = true, vector_due_ = random_.below(1500);
        }
        if (aborted) told_vector_ = runs_vector_ = false;
    }

    void list_port() {
        VSequenced &s = *model_;
        s.ar_ready = list_left_ == 0;
        if (list_left_ && list_due_) list_due_--;
        s.r_valid = list_left_ && !list_due_;
        if (!s.r_valid) return;
        std::memcpy(&s.r_data[0], &case_.commands[list_at_], LORA_LINE_BYTES);
        s.r_last = list_left_ == 1;
    }

    // Its bytes are there when its result is.
    void vector_unit() {
        VSequenced &s = *model_;
        s.idle = static_cast<uint8_t>((1u << LORA_UNITS) - 1);
        if (told_vector_ || runs_vector_) s.idle &= static_cast<uint8_t>(~(1u << VFU));
        if (runs_vector_ && vector_due_ && --vector_due_ == 0) {
            const Piece &piece = case_.pieces.at(next_piece_++);
            std::memcpy(case_.banks[LORA_BANK_ONCHIP].data() + piece.offset, piece.bytes.data(),
                        piece.bytes.size());
        }
        s.result_valid = static_cast<uint8_t>(runs_vector_ && !vector_due_ ? 1u << VFU : 0);
    }

    Case &case_;
    Random random_;
    uint32_t busy_;
    VerilatedContext context_{};
    std::unique_ptr<VSequenced> model_;
    uint8_t *call_banks_[LORA_BANK_ONCHIP + 1] = {};
    uint64_t call_bytes_[LORA_BANK_ONCHIP + 1] = {};
    lora_unit_call call_{};
    std::unique_ptr<DisturbedMemory> memory_;
    std::unique_ptr<CheckedPorts<VSequenced>> ports_;
    bool ports_stop_ = false, told_vector_ = false, runs_vector_ = false;
    uint32_t list_left_ = 0, list_due_ = 0, vector_due_ = 0;
    uint64_t list_at_ = 0;
    size_t next_piece_ = 0;
};

} // namespace

int main(int count, char **arguments) {
    if (count != 5) fail("bench FILE SEED BUSY ABORTS");
    Case it(arguments[1]);
    Board board(it, static_cast<uint32_t>(std::stoul(arguments[2])),
                static_cast<uint32_t>(std::stoul(arguments[3])));
    for (unsigned long i = std::stoul(arguments[4]); i > 0; i--) board.run(true);
    for (auto &bank : it.banks) // what ended runs have written
        if (bank.first == LORA_BANK_ONCHIP)
            for (const Piece &piece : it.pieces)
                std::memset(bank.second.data() + piece.offset, 0xff, piece.bytes.size());
    board.run(false);
    std::ofstream out(std::string(arguments[1]) + ".banks", std::ios::binary);
    for (auto &bank : it.banks)
        out.write(reinterpret_cast<const char *>(bank.second.data()),
                  static_cast<std::streamsize>(bank.second.size()));
    std::printf("{\"aborts\": %llu, \"aborts_told\": %llu, \"aborts_with_reads\": %llu, "
                "\"told_cycles\": %llu, \"read_early\": %llu}\n",
                (unsigned long long)board.aborts, (unsigned long long)board.aborts_told,
                (unsigned long long)board.aborts_with_reads, (unsigned long long)board.told_cycles,
                (unsigned long long)board.read_early);
    return 0;
}

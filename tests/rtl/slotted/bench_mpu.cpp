// Commands of the MPU as tests/rtl/mpu_rig.py writes them, in groups: each is told while the one
// before it may still run, as the sequencer does, up to MPU_AHEAD of them. Status, counts and all
// bytes are the native kernels'. Groups are ended by abort or reset at any cycle, memory fails, and
// they begin again.
//   bench_mpu FILE SEED
#include <cstdarg>
#include <cstdlib>
#include <deque>
#include <string>

#include "VSlottedMpu.h"
#include "matmul_call.hpp"
#include "slotted.hpp"

namespace {

constexpr uint32_t BANKS[] = {0, 1, 2, 4, 5, 6, 32, 33, LORA_BANK_ONCHIP};
constexpr uint32_t FP16_ARRAY = 0, INT8_ARRAY = 1, ADAPTER = 2, ATTENTION = 3; // mpu_types.sv
constexpr uint32_t UNIT_SHIFT = 16, KIND_SHIFT = 14;                           // of a tag
constexpr uint32_t OF_CHANNELS = 3; // kind of a line, of integer_arrays
constexpr int NONE = -1;

struct Head {
    lora_list list;
    lora_step_state state;
    uint32_t count;
};
struct Command {
    lora_command command;
    uint32_t status, nonfinite_count, nonfinite_row;
};
struct Group {
    Head head;
    std::vector<Command> commands;
    Banks before, wanted;
};

// Banks that are not those of before.
void read_changes(std::ifstream &file, Banks &banks) {
    uint32_t mask = 0;
    file.read(reinterpret_cast<char *>(&mask), sizeof mask);
    for (uint32_t bank : BANKS) {
        std::vector<uint8_t> &bytes = banks[bank];
        bytes.resize(BANK_BYTES);
        if (mask & 1) file.read(reinterpret_cast<char *>(bytes.data()), BANK_BYTES);
        mask >>= 1;
    }
}

bool read_group(std::ifstream &file, Group &group) {
    if (!file.read(reinterpret_cast<char *>(&group.head), sizeof group.head)) return false;
    group.commands.resize(group.head.count);
    file.read(reinterpret_cast<char *>(group.commands.data()),
              static_cast<std::streamsize>(group.commands.size() * sizeof(Command)));
    group.before = group.wanted;
    read_changes(file, group.before);
    group.wanted = group.before;
    read_changes(file, group.wanted);
    return bool(file);
}

[[noreturn]] void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

const lora_matrix &as_matrix(const lora_command &command) {
    return reinterpret_cast<const lora_matrix &>(command);
}

// The units that may ask memory for it.
uint32_t units_of(const lora_command &command) {
    if (command.opcode == LORA_CMD_ATTENTION) return 1u << ATTENTION;
    if (command.opcode == LORA_CMD_ADAPTER) return 1u << ADAPTER;
    uint32_t kind = weight_kind(&as_matrix(command));
    bool integers = kind == LORA_WEIGHT_INT8 || kind == LORA_WEIGHT_W4A8;
    return 1u << (integers ? INT8_ARRAY : FP16_ARRAY) | uint32_t{as_matrix(command).adapter != 0}
                                                            << ADAPTER;
}

std::string kind_of(const lora_command &command) {
    if (command.opcode == LORA_CMD_ATTENTION) return "attention";
    if (command.opcode == LORA_CMD_ADAPTER) return "down";
    if (as_matrix(command).adapter) return "adapted";
    return "weights_" + std::to_string(weight_kind(&as_matrix(command)));
}

// Beside rows the channels' banks, each behind a port: lines in the order of the reads, late, one
// of which may fail.
struct Rows {
    uint32_t row = 0, slot = 0;
    Banks *banks = nullptr;
    Random *random = nullptr;
    uint32_t fail_in = 0; // lines; 0: none fails
    bool failed = false;
    std::deque<uint32_t> lines[CHANNELS + 1];

    void reset() {
        for (auto &of_bank : lines) of_bank.clear();
    }
    void answer_banks(VSlottedMpu &m) {
        m.bank_read_ready = m.bank_line_valid = m.bank_line_refused = m.bank_line_error = 0;
        for (int i = 0; i < CHANNELS; i++) {
            if (!random->once_in(4)) m.bank_read_ready |= 1u << i;
            if (lines[i].empty() || random->once_in(3)) continue;
            uint32_t line = lines[i].front();
            lines[i].pop_front();
            m.bank_line_valid |= 1u << i;
            if (line < BANK_BYTES / LORA_LINE_BYTES)
                std::memcpy(&m.bank_line_data[i][0], &(*banks)[i][line * LORA_LINE_BYTES],
                            LORA_LINE_BYTES);
            else m.bank_line_refused |= 1u << i;
            if (fail_in == 0 || --fail_in != 0) continue;
            failed = true;
            m.bank_line_error |= 1u << i;
            m.bank_line_data[i][0] = ~m.bank_line_data[i][0];
        }
    }
    void note_banks(VSlottedMpu &m) {
        for (int i = 0; i < CHANNELS; i++)
            if (m.bank_read_valid >> i & m.bank_read_ready >> i & 1)
                lines[i].push_back(m.bank_read_line[i]);
    }
    void answer(VSlottedMpu &m, const lora_step_state &state) {
        answer_banks(m);
        const lora_row &found = state.rows[row % LORA_MAX_ROWS];
        m.row_number = static_cast<uint8_t>(row);
        m.row_sequence = found.sequence;
        m.row_slot = static_cast<uint32_t>(found.slot);
        m.row_committed = state.lengths[found.sequence % LORA_MAX_SEQUENCES];
        m.row_adapter = static_cast<uint32_t>(found.adapter);
        m.slot_parent = static_cast<uint16_t>(state.slots[slot].parent);
    }
    void note(VSlottedMpu &m, const lora_step_state &state) {
        row = m.row_selected ? state.selected[m.row % LORA_MAX_ROWS] : m.row;
        slot = m.slot % LORA_MAX_SCRATCH;
        note_banks(m);
    }
};

// Whether channels run it: columns whole over their banks.
bool by_columns(const lora_command &command) {
    const lora_matrix &matrix = as_matrix(command);
    uint32_t kind = matrix.weight_type & LORA_WEIGHT_TYPE_MASK;
    return CHANNELS && matrix.opcode == LORA_CMD_MATRIX &&
           (kind == LORA_WEIGHT_INT8 || kind == LORA_WEIGHT_W4A8) && !matrix.adapter &&
           !matrix.bank_first && matrix.bank_count == CHANNELS &&
           matrix.merge == (matrix.k + 127) / 128;
}

void give_list(VSlottedMpu &m, const lora_list &list) {
    m.list_onchip_bytes = BANK_BYTES;
    m.list_kv_type = list.kv_type;
    m.list_kv_layers = list.kv_layers;
    m.list_kv_heads = list.kv_heads;
    m.list_head_dim = list.head_dim;
    m.list_kv_bank_first = list.kv_bank_first & 63;
    m.list_kv_bank_count = list.kv_bank_count & 63;
    m.list_kv_line = list.kv_line;
    m.list_kv_spill_page = list.kv_spill_page & 0x1ffff;
    m.list_kv_spill_bank_first = list.kv_spill_bank_first & 63;
    m.list_kv_spill_bank_count = list.kv_spill_bank_count & 63;
    m.list_kv_spill_line = list.kv_spill_line;
    m.list_table_bank = list.table_bank & 63;
    m.list_table_line = list.table_line;
    m.list_max_tiles = list.max_tiles;
    m.list_adapter_slots = static_cast<uint16_t>(list.adapter_slots);
    m.list_adapter_chunks = list.adapter_chunks;
    m.list_adapter_matrices = static_cast<uint16_t>(list.adapter_matrices);
    m.list_adapter_columns = list.adapter_columns;
    m.list_adapter_line = list.adapter_line;
    m.list_adapter_bank_first = list.adapter_bank_first & 63;
    m.list_adapter_bank_count = list.adapter_bank_count & 63;
}

class Board {
  public:
    explicit Board(uint32_t seed) : random_(seed ^ 0x5eed), unit_(seed) {
        unit_.model().unit_rows = 0;
        unit_.rows().random = &random_;
    }

    // How a run of a group ends: at a cycle, else with the last result or the first that is none.
    struct Plan {
        uint32_t until = LIMIT; // cycles; LIMIT: it does not
        bool resets = false;
        uint32_t fail_at = 0; // of what memory does; 0: it does not
        bool banks = false;   // fail_at is of lines of channels
    };

    // Whether all commands were done.
    bool run(size_t number, const Group &group, Banks &banks, const Plan &plan) {
        VSlottedMpu &m = unit_.model();
        number_ = number;
        give_list(m, group.head.list);
        unit_.give(group.head.state, banks);
        unit_.fail_at(plan.banks ? 0 : plan.fail_at);
        unit_.rows().banks = &banks;
        unit_.rows().fail_in = plan.banks ? plan.fail_at : 0;
        unit_.rows().failed = false;
        running_ = blamed_ = NONE;
        told_.clear();
        next_ = done_ = 0;
        tell_in_ = start_in_ = 0;
        for (uint32_t cycle = 0; done_ < group.commands.size(); cycle++) {
            if (cycle == LIMIT) fail("group %zu, command %zu: no end", number, done_);
            if (cycle == plan.until) return end(plan), false;
            if (!step(group)) return end({}), false;
        }
        if (!unit_.idle()) fail("group %zu: not idle behind its last result", number);
        return true;
    }

    uint64_t runs = 0;
    std::map<std::string, uint64_t> counts;

  private:
    static uint32_t soon(Random &random) {
        return random.once_in(2) ? random.below(3) : random.below(1500);
    }

    void tell(const Group &group) {
        VSlottedMpu &m = unit_.model();
        lora_unit_call call{};
        call.command = &group.commands[next_].command;
        call.state = &group.head.state;
        std::memcpy(&m.unit_line[0], call.command, sizeof *call.command);
        m.unit_rows = static_cast<uint8_t>(rows_of(&call));
        m.unit_announce = 1;
        if (told_.empty()) start_in_ = soon(random_);
        told_.push_back(static_cast<int>(next_++));
        counts["told"]++;
        counts["told_early"] += running_ != NONE;
        counts["told_further_ahead"] += told_.size() > 1;
        uint32_t columns = 0;
        for (int told : told_)
            columns += by_columns(group.commands[static_cast<size_t>(told)].command);
        counts["columns_told_further_ahead"] += columns > 1;
    }

    // A cycle as the sequencer has it. False where a command has failed.
    bool step(const Group &group) {
        VSlottedMpu &m = unit_.model();
        m.unit_announce = m.unit_start = 0;
        if (!told_.empty() && running_ == NONE && start_in_-- == 0) {
            m.unit_start = 1;
            running_ = told_.front();
            told_.pop_front();
            start_in_ = soon(random_);
            if (told_.empty()) tell_in_ = soon(random_);
        } else if (told_.size() < MPU_AHEAD && next_ < group.commands.size() &&
                   (tell_in_ == 0 || tell_in_-- == 0 || (running_ == NONE && told_.empty()))) {
            tell(group);
            tell_in_ = soon(random_);
        }
        bool over = m.result_valid && !m.unit_start && running_ != NONE;
        m.result_ready = over && !random_.once_in(4);
        bool taken = over && m.result_ready, good = true;
        if (m.result_valid && running_ == NONE) fail("group %zu: a result of nothing", number_);
        if (taken) good = check(group.commands[static_cast<size_t>(running_)]);
        unit_.cycle();
        if (m.offer_changed) fail("group %zu: an offer changes before it is taken", number_);
        if (unit_.read_taken && !told_.empty()) counts["fetched_early"]++;
        if (unit_.failed.any && blamed_ == NONE) blame(group);
        if (!taken) return true;
        running_ = NONE;
        done_++;
        return good;
    }

    void blame(const Group &group) {
        uint32_t unit = unit_.failed.tag >> UNIT_SHIFT & 3;
        if (CHANNELS && !unit_.failed.write && unit == INT8_ARRAY &&
            (unit_.failed.tag >> KIND_SHIFT & 3) == OF_CHANNELS) {
            unit_.rows().failed = true; // it ends who uses it, as a line of a bank
            return;
        }
        bool runs = running_ != NONE &&
                    (unit_.failed.write ||
                     units_of(group.commands[static_cast<size_t>(running_)].command) >> unit & 1);
        blamed_ = runs ? running_ : NONE;
        for (int told : told_) // the first one of that unit
            if (blamed_ == NONE &&
                units_of(group.commands[static_cast<size_t>(told)].command) >> unit & 1)
                blamed_ = told;
        if (blamed_ == NONE) fail("group %zu: memory is asked for nothing", number_);
        counts[unit_.failed.write ? "failed_write" : runs ? "failed_line" : "failed_early"]++;
    }

    // Whether it was done.
    bool check(const Command &it) {
        VSlottedMpu &m = unit_.model();
        uint32_t expected = blamed_ == running_ ? uint32_t{LORA_ERR_UNIT} : it.status;
        if (unit_.rows().failed && by_columns(it.command) && m.result_status == LORA_ERR_UNIT) {
            expected = LORA_ERR_UNIT; // it used the line
            counts["failed_column"]++;
        }
        bool good = expected == LORA_OK;
        std::string name = kind_of(it.command);
        if (good && by_columns(it.command)) counts["by_columns"]++;
        counts["status_" + std::to_string(expected)]++;
        if (good) counts[name]++;
        if (m.result_status != expected ||
            m.result_state != (good ? uint32_t{LORA_UNIT_DONE} : uint32_t{LORA_UNIT_FAILED}))
            fail("group %zu, command %d (%s): state %u, status %u; expected status %u", number_,
                 running_, name.c_str(), m.result_state, m.result_status, expected);
        uint32_t count = good ? it.nonfinite_count : 0;
        uint32_t row = good ? it.nonfinite_row : ~0u;
        if (m.result_nonfinite_count != count || m.result_nonfinite_row != row)
            fail("group %zu, command %d (%s): %u values not finite from row %d on, expected %u "
                 "from %d",
                 number_, running_, name.c_str(), m.result_nonfinite_count,
                 static_cast<int>(m.result_nonfinite_row), count, static_cast<int>(row));
        counts["nonfinite"] += count != 0;
        return good;
    }

    void end(const Plan &plan) {
        VSlottedMpu &m = unit_.model();
        m.unit_announce = m.unit_start = m.result_ready = 0;
        if (plan.until != LIMIT) {
            counts[plan.resets ? "resets" : "aborts"]++;
            counts["ended_running"] += running_ != NONE;
            counts["ended_told"] += !told_.empty();
            counts["ended_under_way"] += unit_.under_way();
        }
        if (plan.resets) unit_.reset();
        if (!(plan.resets ? unit_.settle() : unit_.abort())) fail("group %zu: not idle", number_);
    }

    Random random_;
    Slotted<VSlottedMpu, Rows> unit_;
    size_t number_ = 0, next_ = 0, done_ = 0;
    std::deque<int> told_;               // commands of the group
    int running_ = NONE, blamed_ = NONE; // the same
    uint32_t tell_in_ = 0, start_in_ = 0;
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) return 2;
    std::ifstream file(arguments[1], std::ios::binary);
    uint32_t seed = static_cast<uint32_t>(std::stoul(arguments[2]));
    Random random(seed);
    Board board(seed);
    Group group;
    size_t number = 0;
    for (; read_group(file, group); number++) {
        bool good = group.commands.back().status == LORA_OK;
        Banks banks = group.before;
        while (random.once_in(2)) {
            Board::Plan plan;
            plan.until = 1 + random.below(uint64_t{1} << (5 + random.below(9)));
            plan.resets = random.once_in(4);
            if (good && random.once_in(2))
                plan = {LIMIT, false, 1 + random.below(uint64_t{1} << random.below(11)),
                        CHANNELS && random.once_in(2)};
            if (board.run(number, group, banks, plan) && banks != group.wanted)
                fail("group %zu: bytes differ where a line that failed was not used", number);
            banks = group.before;
        }
        bool done = board.run(number, group, banks, {});
        if (done != good) fail("group %zu: %s", number, done ? "done" : "failed");
        if (good && banks != group.wanted) fail("group %zu: bytes differ", number);
    }
    std::string text = "{\"groups\": " + std::to_string(number);
    for (const auto &[name, found] : board.counts)
        text += ", \"" + name + "\": " + std::to_string(found);
    std::printf("%s}\n", text.c_str());
    return 0;
}

// A simulated DMA unit beside the emulator's: the same bytes in every bank, statuses and sums.
//   bench --cases N --seed S      prints one JSON line
//   bench --heads H               cycles of a row's K and V of so many heads of 128 columns
#include "commands.hpp"
#include "reference.h"

#include <cstdio>
#include <cstdlib>

namespace {

Tally tally;

const char *name_of(uint32_t opcode) {
    switch (opcode) {
    case LORA_CMD_KV_STORE: return "store";
    case LORA_CMD_KV_COMMIT: return "commit";
    case LORA_CMD_MOVE_ROWS: return "move";
    case LORA_CMD_CHECKSUM: return "sum";
    default: return "other";
    }
}

void expect(const char *what, uint64_t found, uint64_t expected) {
    if (found != expected)
        throw std::runtime_error(std::string(what) + " is " + std::to_string(found) +
                                 ", expected " + std::to_string(expected));
}

// The emulator's memory, with the scene's bytes in its arenas.
class Emulated {
  public:
    explicit Emulated(const Scene &scene)
        : banks_(scene.banks), r_(reference_new(BANKS, BANK_BYTES, scene.onchip_bytes)) {
        for (const Arena &arena : banks_.arenas)
            if (arena.bank != LORA_BANK_ONCHIP)
                reference_reserve(r_, arena.bank, arena.offset, arena.bytes);
    }
    ~Emulated() { reference_free(r_); }

    reference_outcome run(const Job &job, Banks &banks) {
        for (const Arena &arena : banks_.arenas)
            std::memcpy(reference_at(r_, arena.bank, arena.offset),
                        &banks.bytes[arena.bank][arena.offset], arena.bytes);
        reference_outcome outcome = reference_run(r_, &job.command, &job.list, &job.state);
        for (const Arena &arena : banks_.arenas)
            std::memcpy(&banks.bytes[arena.bank][arena.offset],
                        reference_at(r_, arena.bank, arena.offset), arena.bytes);
        return outcome;
    }

  private:
    const Banks &banks_;
    reference *r_;
};

// A commit that fails at a block may have moved other layers: the emulator's go on, the unit's do
// not.
void expect_bytes(const Banks &found, const Banks &expected, const Banks *before) {
    for (auto &[bank, bytes] : expected.bytes) {
        const std::vector<uint8_t> &mine = found.bytes.at(bank);
        if (mine == bytes) continue;
        for (size_t i = 0; i < bytes.size(); i++)
            if (mine[i] != bytes[i] && !(before && mine[i] == before->bytes.at(bank)[i]))
                throw std::runtime_error("byte " + std::to_string(i) + " of bank " +
                                         std::to_string(bank) + " differs");
    }
}

class Case {
  public:
    explicit Case(Random &random)
        : random_(random), maker_(random), scene_(maker_.make()), emulated_(scene_) {
        context_.randReset(2);
        context_.randSeed(1 + static_cast<int>(random.below(1 << 30)));
        banks_.arenas = scene_.banks.arenas;
        card_ = std::make_unique<Card>(context_, banks_, Behavior::any(random), random);
    }

    void run() {
        uint32_t commands = 1 + random_.below(5);
        for (uint32_t i = 0; i < commands; i++) {
            if (random_.once_in(3)) maker_.make_step(scene_);
            Job job = CommandMaker(random_, scene_).make();
            job_ = &job;
            std::vector<std::vector<Write>> begun;
            for (uint32_t tries = random_.once_in(2) ? random_.below(4) : 0; tries > 0; tries--)
                disturb(job, begun);
            if (random_.once_in(12)) fail_by_error(job);
            compare(job, begun);
        }
        tally["kind_" + std::to_string(scene_.list.kv_type)]++;
        if (scene_.list.kv_spill_bank_count) tally["spills"]++;
    }

    const Job *job() const { return job_; }

  private:
    // Begins this command, or another one, in memory of its own, and ends it at any cycle.
    void disturb(const Job &job, std::vector<std::vector<Write>> &begun) {
        bool same = random_.once_in(2);
        Job other = same ? job : CommandMaker(random_, scene_).make();
        banks_.bytes = scene_.banks.bytes;
        card_->memory->writes.clear();
        Outcome outcome{};
        uint64_t cycles = 1 + random_.below(1 << (3 + random_.below(10)));
        if (card_->run(other, cycles, outcome)) {
            tally["ended_before"]++;
            return;
        }
        bool resets = random_.once_in(3);
        if (card_->memory->reads()) tally[resets ? "resets_with_reads" : "aborts_with_reads"]++;
        if (card_->memory->write_left()) tally["ended_with_write_left"]++;
        if (card_->memory->read_left()) tally["ended_with_read_left"]++;
        if (resets) card_->reset();
        else card_->abort();
        card_->cycle();
        if (!resets && random_.once_in(4)) card_->abort(); // once more
        card_->wait_idle();
        if (same) begun.push_back(card_->memory->writes);
        tally[resets ? "resets" : "aborts"]++;
        tally[std::string("ended_") + name_of(other.command.opcode)]++;
    }

    // Answers that are errors fail the command, and nothing but a begin of its own writes is there.
    void fail_by_error(const Job &job) {
        Banks banks = scene_.banks;
        VerilatedContext context;
        Behavior behavior = Behavior::any(random_);
        Card whole(context, banks, behavior, random_);
        Outcome right{};
        whole.run(job, 0, right);
        std::vector<Write> wanted = whole.memory->writes;
        banks.bytes = scene_.banks.bytes;
        behavior.errors = 1 + random_.below(60);
        Card card(context, banks, behavior, random_);
        Outcome outcome{};
        card.run(job, 0, outcome);
        if (card.memory->errors) {
            expect("state behind an error", outcome.state, LORA_UNIT_FAILED);
            expect("status behind an error", outcome.status, LORA_ERR_UNIT);
            tally["errors"]++;
        } else {
            expect("status", outcome.status, right.status);
        }
        expect_begin(card.memory->writes, wanted);
        if (!card.unit->unit_idle) throw std::runtime_error("not idle behind an error");
    }

    static void expect_begin(const std::vector<Write> &begun, const std::vector<Write> &wanted) {
        if (begun.size() > wanted.size() || !std::equal(begun.begin(), begun.end(), wanted.begin()))
            throw std::runtime_error("writes of a command that was ended are no begin of its own");
    }

    void compare(const Job &job, const std::vector<std::vector<Write>> &begun) {
        banks_.bytes = scene_.banks.bytes;
        card_->memory->writes.clear();
        Outcome found{};
        card_->run(job, 0, found);
        for (const auto &writes : begun) expect_begin(writes, card_->memory->writes);
        Banks before = scene_.banks;
        reference_outcome wanted = emulated_.run(job, scene_.banks);
        expect("status", found.status, wanted.status);
        expect("state", found.state, wanted.status ? LORA_UNIT_FAILED : LORA_UNIT_DONE);
        bool part = job.command.opcode == LORA_CMD_KV_COMMIT && wanted.status == LORA_ERR_ADDRESS;
        expect_bytes(banks_, scene_.banks, part ? &before : nullptr);
        if (job.command.opcode == LORA_CMD_CHECKSUM && !wanted.status)
            expect("sum", found.value, wanted.value);
        if (part) scene_.banks.bytes = before.bytes;
        std::string name = name_of(job.command.opcode);
        tally[wanted.status ? name + "_refused_" + std::to_string(wanted.status) : name]++;
        if (!wanted.status && !card_->memory->writes.empty()) tally[name + "_writes"]++;
        if (name == "commit" && !wanted.status && job.command.body[0] &&
            !card_->memory->writes.empty())
            tally["commit_of_layers"]++;
        tally["cycles"] += found.cycles;
        tally["lines"] += card_->memory->writes.size();
    }

    Random &random_;
    SceneMaker maker_;
    Scene scene_;
    Emulated emulated_;
    VerilatedContext context_;
    Banks banks_{scene_.banks};
    std::unique_ptr<Card> card_;
    const Job *job_ = nullptr;
};

// A row of FP16 K and V, stored and committed, where memory answers after 31 cycles.
int print_cycles(uint16_t heads) {
    Random random(1);
    Scene scene;
    lora_list &list = scene.list;
    list.kv_type = LORA_KV_FP16;
    list.head_dim = 128;
    list.kv_layers = 1;
    list.kv_heads = heads;
    list.page_count = 2;
    list.kv_bank_count = 4;
    list.max_scratch = 32;
    list.max_sequences = list.max_tiles = 1;
    list.control_bank = list.table_bank = CONTROL;
    const uint32_t row = 256u * heads;
    for (uint32_t bank = 0; bank <= CONTROL; bank++) scene.banks.bytes[bank].resize(1 << 20);
    scene.onchip_bytes = 2 * row;
    scene.banks.bytes[LORA_BANK_ONCHIP].resize(scene.onchip_bytes);
    for (auto &[bank, bytes] : scene.banks.bytes)
        scene.banks.arenas.push_back({bank, 0, bytes.size()});
    std::vector<uint8_t> &control = scene.banks.bytes[CONTROL];
    control[0] = 1; // the page of the sequence's tile
    lora_kv_op op = {LORA_KV_COMMIT, 0, 5, 0, 1};
    std::memcpy(&control[64], &op, sizeof op);
    control[128] = 3; // the slot
    VerilatedContext context;
    Banks banks = scene.banks;
    Card card(context, banks, {31, 0, 0, false, 0}, random);
    for (bool commits : {false, true}) {
        Job job;
        lora_kv_store store{};
        store.opcode = LORA_CMD_KV_STORE;
        store.head_dim = list.head_dim;
        store.kv_heads = heads;
        store.v_offset = store.stride = row;
        job.list = list;
        job.state.row_count = 1;
        job.state.rows[0].slot = 3;
        job.state.kv_op_count = job.state.path_count = 1;
        job.state.kv_ops_offset = 64;
        job.state.path_offset = 128;
        std::memcpy(&job.command, &store, sizeof store);
        if (commits) job.command = {};
        if (commits) job.command.opcode = LORA_CMD_KV_COMMIT;
        card.memory->writes.clear();
        Outcome outcome{};
        card.run(job, 0, outcome);
        expect("status", outcome.status, LORA_OK);
        std::printf("%s\"%s\": %llu, \"%s_lines\": %zu", commits ? ", " : "{",
                    commits ? "commit" : "store", static_cast<unsigned long long>(outcome.cycles),
                    commits ? "commit" : "store", card.memory->writes.size());
    }
    std::printf("}\n");
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    uint64_t cases = 1, seed = 1, first = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::string(argv[i]) == "--heads")
            return print_cycles(static_cast<uint16_t>(std::strtoul(argv[i + 1], nullptr, 10)));
        if (std::string(argv[i]) == "--cases") cases = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::string(argv[i]) == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::string(argv[i]) == "--first") first = std::strtoull(argv[i + 1], nullptr, 10);
    }
    for (uint64_t i = first; i < cases; i++) {
        Random random(seed * 1000003 + i);
        const char *name = "";
        try {
            Case one(random);
            try {
                one.run();
            } catch (const std::exception &) {
                if (one.job()) name = name_of(one.job()->command.opcode);
                throw;
            }
        } catch (const std::exception &error) {
            std::fprintf(stderr, "case %llu of seed %llu: %s: %s\n",
                         static_cast<unsigned long long>(i), static_cast<unsigned long long>(seed),
                         name, error.what());
            return 1;
        }
    }
    std::printf("{\"cases\": %llu", static_cast<unsigned long long>(cases));
    for (auto &[key, count] : tally)
        std::printf(", \"%s\": %llu", key.c_str(), static_cast<unsigned long long>(count));
    std::printf("}\n");
    return 0;
}

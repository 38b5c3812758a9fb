// The control's ports to host, memory and a link, each in a clock of its own, with resets at any
// time: right words in the right order, AXI's rules, errors where they belong, and nothing that
// hangs. ports --edges N --seed N [--resets]
#include "axi_memory.hpp"
#include "clocks.hpp"
#include "control_side.hpp"
#include "other_sides.hpp"
#include "verilated.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

enum : uint32_t { CONTROL, HOST, MEMORY, LINK, CLOCKS };
constexpr uint64_t HALF = 1000;

struct Options {
    uint64_t edges = 200000, seed = 1;
    bool resets = false;
};

class Bench {
  public:
    explicit Bench(const Options &options)
        : options_(options), chance_(seed()), clocks_(seed()), bench_(make()),
          control_(*bench_, words_, seed() + 1), host_(*bench_, seed() + 2),
          link_(*bench_, seed() + 4), memory_(
                                          *bench_,
                                          [this](uint64_t address, uint32_t lanes, uint32_t data) {
                                              return words_.access(address, lanes, data);
                                          },
                                          seed() + 3) {
        memory_.bad = ControlSide::bad;
        for (uint32_t i = 0; i < CLOCKS; i++) // from 1:5 to 5:1
            clocks_.add(i == CONTROL    ? HALF
                        : chance_() % 2 ? HALF / 5 + chance_() % HALF
                                        : HALF + chance_() % (4 * HALF));
        metastable::window = HALF / 12;
        host_.lite.quiet();
        memory_.quiet();
        options_.resets = false; // power-on: all sides together, for a while
        edges(1000);
        bench_->rst = bench_->host_rst = bench_->memory_rst = bench_->link_rst = 0;
        options_.resets = options.resets;
        control_.start();
    }

    int run() {
        edges(options_.edges);
        options_.resets = false;
        bench_->rst = bench_->host_rst = bench_->memory_rst = bench_->link_rst = 0;
        control_.gives = host_.gives = link_.gives = false;
        edges(40000);
        if (!control_.quiet()) problem("something was not answered");
        link_.check(side_resets_ != 0);
        if (!side_resets_ && reached_ != host_.reached) problem("an access was done twice");
        host_.interrupts([this] { edges(2000); });
        look();
        printf("{\"lines\": %llu, \"reads\": %llu, \"writes\": %llu, \"errors\": %llu, "
               "\"accesses\": %llu, \"refused\": %llu, \"cut\": %llu, \"epochs\": %llu, "
               "\"poisons\": %llu, \"tests\": %llu, \"resets\": %llu, \"unsure\": %llu}\n",
               number(control_.lines), number(control_.reads), number(control_.writes),
               number(control_.errors), number(host_.accesses), number(host_.refused),
               number(host_.cut), number(link_.epochs), number(link_.poisons), number(link_.tests),
               number(side_resets_), number(metastable::torn));
        return 0;
    }

  private:
    static unsigned long long number(uint64_t value) { return value; }
    uint32_t seed() const { return static_cast<uint32_t>(options_.seed); }

    std::unique_ptr<Vports_bench> make() {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(options_.seed & 0x7fffffff) | 1);
        metastable::seed(seed());
        auto made = std::make_unique<Vports_bench>(&context_);
        made->clk = made->host_clk = made->memory_clk = made->link_clk = 0;
        made->rst = made->host_rst = made->memory_rst = made->link_rst = 1;
        made->memory_valid = made->ar_valid = made->r_ready = made->done = 0;
        made->poison = made->test_start = made->link_test_done = made->link_test_failed = 0;
        made->epoch = 1;
        return made;
    }

    [[noreturn]] void problem(const std::string &what) {
        printf("%s\n", what.c_str());
        exit(1);
    }

    void look() {
        for (const std::string &what :
             {memory_.broken(), host_.lite.broken(), control_.wrong, host_.wrong, link_.wrong})
            if (!what.empty()) problem(what);
    }

    void edges(uint64_t count) {
        while (count--) {
            edge();
            if (count % 256 == 0) look();
        }
    }

    void edge() {
        uint32_t clock = clocks_.next();
        bool rises = clocks_.level(clock);
        if (rises) before(clock);
        (clock == CONTROL  ? bench_->clk
         : clock == HOST   ? bench_->host_clk
         : clock == MEMORY ? bench_->memory_clk
                           : bench_->link_clk) = rises;
        bench_->eval();
        if (rises) behind(clock);
        bench_->eval();
    }

    void before(uint32_t clock) {
        if (clock == CONTROL) {
            control_.see();
            if (bench_->host_valid && !bench_->rst) reached_++;
            if (bench_->rst) host_.control_resets();
        }
        if (clock == HOST) host_.see();
        if (clock == MEMORY) memory_.see();
        if (clock == LINK) link_.link_sees();
    }

    void behind(uint32_t clock) {
        if (clock == CONTROL) {
            side_reset(bench_->rst, 4000);
            if (bench_->memory_rst) bench_->rst = 1;
            control_.drive();
            link_.control_drives();
        } else if (clock == HOST) {
            side_reset(bench_->host_rst, 4000);
            host_.drive();
        } else if (clock == MEMORY) {
            // until the control has seen it, as by reset_sync
            if (!bench_->memory_rst || bench_->rst) side_reset(bench_->memory_rst, 8000);
            memory_.drive();
        } else {
            side_reset(bench_->link_rst, 4000);
            link_.link_drives();
        }
    }

    void side_reset(CData &rst, uint32_t chance) {
        if (!options_.resets) return;
        if (!rst && chance_() % chance == 0) {
            rst = 1;
            side_resets_++;
        } else if (rst && chance_() % 4 == 0) {
            rst = 0;
        }
    }

    Options options_;
    std::mt19937 chance_;
    Clocks clocks_;
    VerilatedContext context_;
    std::unique_ptr<Vports_bench> bench_;
    Words words_;
    ControlSide control_;
    HostSide host_;
    LinkSide link_;
    AxiMemory<Vports_bench> memory_;
    uint64_t side_resets_ = 0, reached_ = 0;
};

Options parse(int count, char **values) {
    Options options;
    for (int i = 1; i < count; i++) {
        auto number = [&] { return i + 1 < count ? strtoull(values[++i], nullptr, 0) : 0; };
        if (!strcmp(values[i], "--edges")) options.edges = number();
        else if (!strcmp(values[i], "--seed")) options.seed = number();
        else if (!strcmp(values[i], "--resets")) options.resets = true;
        else return printf("unknown option %s\n", values[i]), exit(2), options;
    }
    return options;
}

} // namespace

int main(int count, char **values) { return Bench(parse(count, values)).run(); }

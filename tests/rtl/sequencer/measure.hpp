// A list as the host stores it, one row and one commit: how many cycles no unit runs.
#ifndef TEST_SEQUENCER_MEASURE_HPP
#define TEST_SEQUENCER_MEASURE_HPP

#include <fstream>
#include <iterator>

#include "bench.hpp"

inline List stored_list(const char *file) {
    std::ifstream stream(file, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(stream)),
                            std::istreambuf_iterator<char>());
    lora_list header;
    if (bytes.size() < sizeof header) fail("%s: no list", file);
    std::memcpy(&header, bytes.data(), sizeof header);
    if (bytes.size() < sizeof header + uint64_t{header.command_count} * LORA_LINE_BYTES)
        fail("%s: %zu bytes do not hold %u commands", file, bytes.size(), header.command_count);
    List list;
    list.commands.resize(header.command_count);
    std::memcpy(list.commands.data(), bytes.data() + sizeof header,
                list.commands.size() * LORA_LINE_BYTES);
    list.run.commands = list.commands.data();
    list.run.command_count = header.command_count;
    list.run.counter_count = header.counter_count;
    list.run.boards = header.boards;
    list.run.rows = list.run.selected = list.run.moves_kv = 1;
    return list;
}

inline int measure(const char *file, const uint32_t times[LORA_UNITS]) {
    Random random(1);
    List list = stored_list(file);
    Memory memory(random, 4, list);
    Units units(random, list.run, Fault{});
    Bench bench(random, list, false);
    VSequencer &s = bench.model();
    uint64_t first = 0, last = 0, none = 0, idle = 0;
    units.times = times;
    memory.set_latency(60);
    bench.use(&memory, &units);
    bench.power_up();
    bench.seal();
    reference_begin(&list.run);
    bench.begin(4);
    while (s.busy) {
        bench.step(true);
        bool runs = false;
        for (const Unit &unit : units.unit) runs |= unit.running;
        if (runs && !first) first = bench.ran();
        none = runs || !first ? 0 : none + 1;
        if (runs) last = bench.ran();
        else if (first) idle++;
    }
    idle -= none; // behind the last result
    uint32_t started = 0;
    for (const Unit &unit : units.unit) started += unit.started;
    if (s.failed) fail("%s: the run fails", file);
    std::printf("{\"commands\": %u, \"started\": %u, \"counters\": %u, \"cycles\": %llu, "
                "\"before\": %llu, \"idle\": %llu, \"after\": %llu}\n",
                list.run.command_count, started, list.run.counter_count,
                (unsigned long long)bench.ran(), (unsigned long long)first,
                (unsigned long long)idle, (unsigned long long)(bench.ran() - last));
    return 0;
}

#endif

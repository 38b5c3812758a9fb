// Random lists through the sequencer and through the firmware's dispatch: the same starts of each
// unit for the same results, the same counters, records and errors.
//   bench --lists N --seed S      prints one JSON line
//   bench --measure FILE -- MPU VFU ROUTER DMA   a list as the host stores it, one row
#include "bench.hpp"
#include "measure.hpp"
#include "tally.hpp"

#include <cstdarg>
#include <string>

namespace {

uint64_t the_seed;

Tally tally;

void expect(const char *what, uint64_t found, uint64_t expected) {
    if (found != expected)
        fail("%s is %llu, expected %llu", what, static_cast<unsigned long long>(found),
             static_cast<unsigned long long>(expected));
}

void compare_blame(const VSequencer &s, const lora_error_record &error) {
    expect("code", s.blame_code, error.code);
    expect("index", s.blame_index, error.index);
    expect("opcode", s.blame_opcode, error.opcode);
    expect("unit", s.blame_unit, error.unit);
    expect("found", s.blame_found, error.found);
    expect("expected", s.blame_expected, error.expected);
    expect("counter", s.blame_counter, error.counter);
    expect("port", s.blame_port, error.port);
}

void compare_records(const VSequencer &s) {
    lora_completion record = reference_completion();
    expect("nonfinite_count", s.nonfinite_count, record.nonfinite_count);
    expect("nonfinite_index", s.nonfinite_index, record.nonfinite_index);
    expect("nonfinite_row", s.nonfinite_row, record.nonfinite_row);
    expect("frames_sent", s.frames[0], record.frames_sent);
    expect("frames_received", s.frames[1], record.frames_received);
    expect("frames_dropped", s.frames[2], record.frames_dropped);
}

void compare_registers(const VSequencer &s) {
    for (uint32_t u = 0; u < LORA_UNITS; u++) {
        expect("LAST_INDEX", s.last_index[u], reference_register(LORA_REG_LAST_INDEX + 4 * u));
        expect("UNIT_STATE", s.unit_state >> 2 * u & 3,
               reference_register(LORA_REG_UNIT_STATE + 4 * u));
    }
}

void compare_counters(Bench &bench, const test_run &run, bool exact) {
    for (uint32_t c = 0; c < run.counter_count; c++) {
        if (run.counter_count > 100 && c % 7 && reference_counter(c) == 0) continue;
        uint32_t found = bench.counter(c);
        if (exact) expect("a counter", found, reference_counter(c));
        else if (found > reference_counter(c)) fail("counter %u is too high", c);
    }
}

struct Damage { // of the list behind its seals
    uint32_t command = ~0u;
    bool bus = false;
};

void expect_damage(const VSequencer &s, const Memory &memory, const List &list, Damage damage) {
    uint32_t first = damage.command / LORA_CHUNK_COMMANDS * LORA_CHUNK_COMMANDS;
    uint32_t bytes = std::min<uint32_t>(LORA_CHUNK_COMMANDS, list.run.command_count - first) * 64;
    lora_error_record error = reference_error();
    error.code = damage.bus ? LORA_ERR_ADDRESS : LORA_ERR_CRC;
    error.index = first;
    error.opcode = error.unit = error.counter = error.port = ~0u;
    error.found = damage.bus ? 0 : reference_seal(memory.lines() + first, bytes);
    error.expected = damage.bus ? 0 : reference_seal(&list.commands[first], bytes);
    compare_blame(s, error);
}

// Nothing moves any more: time is up, sooner for this board's units than for the links.
void watchdog(Bench &bench) {
    VSequencer &s = bench.model();
    uint64_t limit = (bench.ran() + 30) / 3 * 4, ran;
    s.local_limit = limit - (limit >> 2);
    s.remote_limit = limit;
    while (!s.failed) {
        if (bench.ran() > limit + 100) fail("the watchdog does not end the run");
        bench.step(true);
    }
    ran = s.cycles;
    if (!reference_expire(ran - 12, ran, limit)) fail("the watchdog ends the run at another time");
    while (s.busy) bench.step(true);
}

// What a live run has had in it.
void count(Bench &bench, const List &list) {
    const VSequencer &s = bench.model();
    if (s.failed) tally.failure(s);
    tally.add("poison_sent", bench.poisoned());
    tally.add("ballots", bench.ballots());
    tally.add("segments_of_running_gathers", bench.progress());
    tally.add("nonfinite", s.nonfinite_count != 0);
    tally.add("told_further_ahead", bench.units().most_told > 1);
    for (const lora_command &c : bench.units().begun) tally.command(c);
    for (const lora_command &c : list.commands)
        if (!s.failed && c.opcode == LORA_CMD_FENCE) tally.add("fences");
    for (uint32_t c = 0; !s.failed && c < list.run.counter_count; c++)
        if (reference_counter(c) == 65535) tally.add("saturated");
    if (!s.failed && list.run.command_count > LORA_WINDOW_CHUNKS * LORA_CHUNK_COMMANDS)
        tally.add("beyond_the_window");
    if (!s.failed && !list.run.rows) tally.add("without_rows");
}

void compare_all(Bench &bench, List &list, const Memory &memory, Damage damage, bool stepped) {
    VSequencer &s = bench.model();
    bool damaged = s.failed && s.blame_unit == ~0u && s.blame_code != LORA_ERR_WATCHDOG;
    bool exact = !s.failed || (stepped && !damaged);
    compare_records(s);
    compare_counters(bench, list.run, exact);
    if (damaged) {
        if (damage.command == ~0u) fail("a list that is whole is refused");
        expect_damage(s, memory, list, damage);
    } else {
        expect("outcome", reference_outcome(), s.failed ? TEST_FAILED : TEST_DONE);
        compare_blame(s, reference_error());
    }
    if (exact) compare_registers(s);
    if (!s.failed) expect("votes", bench.ballots(), reference_votes());
    expect("poison", bench.poisoned(), s.failed && list.run.boards > 1);
    count(bench, list);
}

void run_live(Bench &bench, List &list, Memory &memory, Damage damage, bool stepped,
              uint64_t base) {
    VSequencer &s = bench.model();
    reference_begin(&list.run);
    bench.begin(base);
    while (s.busy) {
        bench.step(true);
        if (bench.ran() > ENDLESS / 2) fail("the run does not end");
        if (bench.settled() && !s.failed && s.busy && reference_outcome() == TEST_WAITING) {
            bool waits = true;
            for (uint32_t n = 0; n < 700 && waits && s.busy; n++) {
                bench.step(true);
                waits = bench.settled();
            }
            if (waits && s.busy && !s.failed) watchdog(bench);
        }
    }
    compare_all(bench, list, memory, damage, stepped);
    tally.add("cycles", bench.ran());
}

// Counters alone: END, or the command that waits for ever.
void run_dry(Bench &bench, List &list, uint64_t base) {
    VSequencer &s = bench.model();
    list.run.dry = 1;
    reference_begin(&list.run);
    bench.begin(base);
    while (s.busy) {
        bench.step(false);
        if (bench.ran() > ENDLESS) fail("the dry run does not end");
    }
    expect("dry run", s.failed, reference_outcome() == TEST_FAILED);
    if (s.failed) compare_blame(s, reference_error());
    else compare_counters(bench, list.run, true);
    list.run.dry = 0;
    tally.add("dry");
}

void interrupt(Bench &bench, Random &random, List &list, uint64_t base) {
    VSequencer &s = bench.model();
    uint32_t after = random.below(random.once_in(2) ? 300 : 3000);
    reference_begin(&list.run);
    bench.begin(base);
    while (after-- && s.busy) bench.step(false);
    if (!s.busy) return;
    if (random.once_in(2)) {
        bench.reset(random.between(1, 3));
        if (s.busy) fail("busy behind a reset");
        tally.add("resets");
    } else if (!s.failed) {
        bench.give_up();
        tally.add("aborts");
    } else {
        while (s.busy) bench.step(false);
    }
}

// The window: both refuse, or neither.
void one_far_list(uint64_t seed) {
    Random random(seed);
    List list = far_list(random);
    Memory memory(random, 0, list);
    Units units(random, list.run, Fault{});
    Bench bench(random, list, false);
    bench.use(&memory, &units);
    bench.power_up();
    bench.seal();
    run_dry(bench, list, 0);
    if (bench.model().failed) tally.add("refused");
    else tally.add("reached");
}

uint32_t list_length(Random &random) {
    uint32_t kind = random.below(20);
    if (kind == 0) return random.between(600, 1500); // beyond the window
    return kind < 6 ? random.between(60, 250) : random.between(1, 60);
}

void one_list(uint64_t seed) {
    Random random(seed);
    bool reckless = random.once_in(6), stepped = random.once_in(3);
    uint32_t length = list_length(random);
    if (reckless) length = std::min(length, 400u);
    // the reference looks beyond the window: only without steps it may be ahead
    if (length > LORA_WINDOW_CHUNKS * LORA_CHUNK_COMMANDS) stepped = false;
    List list = ListMaker(random, reckless).make(length);
    uint64_t base = random.below(1u << 30) + (random.once_in(2) ? 0ull : 1ull << 33);
    Fault fault;
    Damage damage;
    if (random.once_in(4)) {
        static const uint32_t statuses[] = {0,
                                            LORA_ERR_UNIT,
                                            LORA_ERR_LINK_DOWN,
                                            LORA_ERR_LINK_CRC,
                                            LORA_ERR_LINK_POISON,
                                            LORA_ERR_ADDRESS};
        fault.index = random.below(length);
        fault.stuck = random.once_in(3);
        fault.also = fault.index + random.below(4);
        fault.state = random.once_in(4) ? uint32_t(LORA_UNIT_IDLE) : random.between(2, 3);
        fault.status = statuses[random.below(6)];
    }
    Memory memory(random, base, list);
    if (random.once_in(12)) {
        damage.command = random.below(length);
        damage.bus = random.once_in(3);
        if (damage.bus) memory.fail_at(damage.command);
        else memory.flip_bit(damage.command, random.below(512));
    }
    Units units(random, list.run, fault);
    Bench bench(random, list, stepped);
    bench.use(&memory, &units);
    bench.power_up();
    bench.seal();
    if (random.once_in(4)) interrupt(bench, random, list, base);
    if (random.once_in(3) && damage.command == ~0u) run_dry(bench, list, base);
    run_live(bench, list, memory, damage, stepped, base);
    tally.add("lists");
    tally.add("commands", length);
}

} // namespace

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::fprintf(stderr, "list %llu: ", static_cast<unsigned long long>(the_seed));
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

int main(int count, char **arguments) {
    uint64_t lists = 100, seed = 1;
    if (count == 8 && std::string(arguments[1]) == "--measure") {
        uint32_t times[LORA_UNITS] = {};
        for (uint32_t u = 1; u < LORA_UNITS; u++)
            times[u] = static_cast<uint32_t>(std::stoul(arguments[u + 3]));
        return measure(arguments[2], times);
    }
    for (int i = 1; i + 1 < count; i += 2) {
        std::string name = arguments[i];
        if (name == "--lists") lists = std::stoull(arguments[i + 1]);
        else if (name == "--seed") seed = std::stoull(arguments[i + 1]);
        else fail("%s: unknown", arguments[i]);
    }
    for (uint64_t i = 0; i < lists; i++) {
        the_seed = seed + i;
        one_list(the_seed);
        if (i % 20 == 0) one_far_list(the_seed);
    }
    tally.print();
    return 0;
}

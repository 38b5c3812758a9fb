/* Runs a command as tests disturb it: first by itself, to know its writes; then it, or another one,
 * is begun and ended by abort or reset at any cycle, on memory kept apart; at last it runs on the
 * call's banks. Whatever came before, its writes must be the same, and an ended command may only
 * have begun them. */
#ifndef LORA_RTL_DISTURBED_RUN_HPP
#define LORA_RTL_DISTURBED_RUN_HPP

#include <algorithm>
#include <functional>
#include <type_traits>

#include "checked_ports.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"

template <class Unit, class = void> struct Announces : std::false_type {};
template <class Unit>
struct Announces<Unit, std::void_t<decltype(std::declval<Unit &>().announce_valid)>>
    : std::true_type {};

template <class Unit> struct DisturbedUnit {
    Simulation<Unit> &simulation;
    std::function<void(const lora_unit_call *)> give; /* sets the command's fields */
    void (*before)(const lora_unit_call *, Unit &);   /* inputs that follow outputs */
    uint32_t (*state)(const Unit &);
    uint32_t others = 0; /* units at the same port, whose writes come in any order */
};

/* A call that outlives its caller, but for the banks. */
class KeptCall {
  public:
    void keep(const lora_unit_call *call) {
        command_ = *call->command;
        list_ = *call->list;
        state_ = *call->state;
        kept_ = true;
    }
    bool kept() const { return kept_; }
    lora_unit_call with_banks_of(const lora_unit_call *call) {
        lora_unit_call found = *call;
        found.command = &command_;
        found.list = &list_;
        found.state = &state_;
        return found;
    }

  private:
    lora_command command_{};
    lora_list list_{};
    lora_step_state state_{};
    bool kept_ = false;
};

template <class Unit> class DisturbedRun {
  public:
    DisturbedRun(DisturbedUnit<Unit> unit, KeptCall &other, lora_rtl_disturbed &tally,
                 uint64_t seed)
        : unit_(unit), other_(other), tally_(tally), random_(seed) {}

    int run(lora_unit_call *call, uint32_t attempts, uint64_t *cycles) {
        DisturbedMemory apart(call, MemoryKind::APART, 0);
        expected_ = nullptr;
        u().line_valid = 0;
        unit_.simulation.edge(); /* the `done` of the command before is over */
        if (!complete(call, apart, {}, nullptr)) return failed();
        expected_ = &apart.writes();
        for (uint32_t i = 0; i < attempts; i++)
            if (!attempt(call)) return failed();
        DisturbedMemory banks(call, MemoryKind::BANKS, 0);
        if (!complete(call, banks, any_behavior(), cycles)) return failed();
        if (banks.writes().size() != apart.writes().size() || !begins_alike(banks, true))
            return fail("the writes are not those of the same command by itself"), failed();
        other_.keep(call);
        tally_.commands++;
        return banks.failed() ? LORA_ERR_ADDRESS : LORA_OK;
    }

    const std::string &error() const { return error_; }

  private:
    static constexpr bool ANNOUNCES = Announces<Unit>::value;
    static constexpr uint64_t LONGEST = 1 << 24, SETTLED = 20000;
    static constexpr uint32_t NEVER = ~0u;
    enum class When { CYCLE, STATE, WRITE_LEFT, READ_LEFT, READS };

    /* How a command is told and started: `distance` cycles lie between; NEVER: it is not started.
     */
    struct Told {
        bool announced = false;
        uint32_t distance = 0;
    };
    struct Trigger {
        When when;
        uint32_t value, count; /* a cycle or a state; at the how-manieth such cycle */
    };

    /* Memory is slower than it was when the command ran by itself. */
    uint64_t longest() const { return expected_ ? 256 * length_ + 100000 : LONGEST; }
    Unit &u() { return *unit_.simulation.operator->(); }
    void set_announce(bool on) {
        if constexpr (ANNOUNCES) u().announce_valid = on;
        else (void)on;
    }
    bool idle() {
        if constexpr (ANNOUNCES) return u().idle;
        else return u().command_ready;
    }

    bool fail(const char *what) {
        if (error_.empty()) error_ = what;
        return false;
    }
    int failed() { return LORA_ERR_UNIT; }

    Behavior any_behavior() {
        static const uint32_t latencies[] = {1, 2, 7, 25, 100}, busy[] = {0, 30, 128, 220};
        return {latencies[random_.below(5)], random_.once_in(3) ? 0 : random_.below(60),
                busy[random_.below(4)]};
    }

    Told any_told() {
        static const uint32_t distances[] = {0, 1, 2, 5, 40, 300, 3000};
        if (!ANNOUNCES || random_.once_in(3)) return {};
        uint32_t longest = distances[random_.below(7)];
        tally_.announces++;
        return {true, longest ? random_.below(longest) + 1 : 0};
    }

    /* Of those that the command is in, the one that saw the fewest aborts, or any. */
    uint32_t rarest_state() {
        uint32_t chosen = 0, seen = 0;
        bool any = random_.once_in(3);
        for (uint32_t s = 0; s < LORA_RTL_STATES; s++) {
            if (!visits_[s]) continue;
            bool rarer = seen && tally_.aborts_in[s] < tally_.aborts_in[chosen];
            if (!seen || (any ? random_.below(seen + 1) == 0 : rarer)) chosen = s;
            seen++;
        }
        return chosen;
    }

    Trigger any_trigger(const Told &told) {
        uint32_t length = static_cast<uint32_t>(length_);
        if (told.distance == NEVER) return {When::CYCLE, random_.below(400), 1};
        switch (random_.below(10)) {
        case 0: return {When::CYCLE, random_.below(length + told.distance), 1};
        case 1: return {When::WRITE_LEFT, 0, random_.below(6) + 1};
        case 2: return {When::READ_LEFT, 0, random_.below(6) + 1};
        case 3: return {When::READS, 0, random_.below(60) + 1};
        default: break;
        }
        uint32_t chosen = rarest_state();
        return {When::STATE, chosen, random_.below(visits_[chosen]) + 1};
    }

    bool fires(Trigger &trigger, const CheckedPorts<Unit> &ports, uint64_t cycle) {
        bool now = false;
        switch (trigger.when) {
        case When::CYCLE: return cycle == trigger.value;
        case When::STATE: now = unit_.state(u()) == trigger.value; break;
        case When::WRITE_LEFT: now = ports.write_left(); break;
        case When::READ_LEFT: now = ports.read_left(); break;
        case When::READS: now = ports.under_way() > 0; break;
        }
        return now && --trigger.count == 0;
    }

    /* One cycle of a command, but for the edge. */
    struct Progress {
        bool taken = false, started = false;
        uint64_t cycle = 0;
    };
    bool begin_cycle(const lora_unit_call *call, CheckedPorts<Unit> &ports, const Told &told,
                     Progress &at) {
        bool first = at.cycle == 0;
        if (first) unit_.give(call);
        /* the fields of an announced command are not looked at again */
        if (ANNOUNCES && told.announced && at.cycle == 1 && other_.kept()) {
            lora_unit_call other = other_.with_banks_of(call);
            unit_.give(&other);
        }
        set_announce(told.announced && first);
        u().command_valid = !at.taken && told.distance != NEVER && at.cycle >= told.distance;
        ports.drive();
        unit_.before(call, u());
        if (!at.started && u().write_valid) return fail("a write, but the command is not started");
        at.started = at.started || u().command_valid;
        at.taken = at.taken || (u().command_valid && u().command_ready);
        return ports.error().empty() || fail(ports.error().c_str());
    }
    void end_cycle(Progress &at) {
        unit_.simulation.edge();
        at.cycle++;
    }

    /* From begin to end. Without writes to compare with, notes how long it is in which state. */
    bool complete(const lora_unit_call *call, DisturbedMemory &memory, Behavior behavior,
                  uint64_t *cycles) {
        CheckedPorts<Unit> ports(u(), memory, behavior, random_);
        Told told = expected_ ? any_told() : Told{};
        Progress at;
        if (!settle(call, ports)) return false;
        do {
            if (!expected_) visits_[unit_.state(u()) % LORA_RTL_STATES]++;
            if (!begin_cycle(call, ports, told, at)) return false;
            end_cycle(at);
            if (at.cycle > longest()) return fail("a command does not end");
        } while (!u().done);
        begin_late(call, ports);
        unit_.simulation.edge();
        if (!expected_) length_ = at.cycle;
        if (cycles) *cycles += at.cycle;
        if (ports.under_way()) return fail("done, but reads are under way");
        return true;
    }

    bool attempt(const lora_unit_call *call) {
        if (random_.once_in(16)) return power_up();
        bool other = other_.kept() && random_.once_in(3);
        bool noise = other || random_.once_in(2);
        lora_unit_call its = other ? other_.with_banks_of(call) : *call;
        DisturbedMemory memory(&its, noise ? MemoryKind::NOISE : MemoryKind::APART, random_.next());
        Told told = any_told();
        if (told.announced && random_.once_in(4)) told.distance = NEVER;
        Trigger trigger = any_trigger(told);
        Behavior behavior = any_behavior();
        if (trigger.when == When::WRITE_LEFT || trigger.when == When::READ_LEFT)
            behavior.busy = 160;
        CheckedPorts<Unit> ports(u(), memory, behavior, random_);
        if (!settle(&its, ports) || !ended(&its, ports, told, trigger)) return false;
        tally_.attempts++;
        tally_.foreign += other;
        return other || begins_alike(memory, !noise) ||
               fail("an ended command wrote what it does not write by itself");
    }

    /* Begins it and ends it. */
    bool ended(const lora_unit_call *call, CheckedPorts<Unit> &ports, const Told &told,
               Trigger trigger) {
        Progress at;
        for (;;) {
            if (!begin_cycle(call, ports, told, at)) return false;
            if (fires(trigger, ports, at.cycle)) break;
            end_cycle(at);
            if (u().done) {
                tally_.late++;
                begin_late(call, ports);
                break;
            }
            if (at.cycle > longest()) return fail("a command does not end");
        }
        return random_.once_in(3) ? by_reset(call, ports) : by_abort(call, ports, at);
    }

    /* The cycle behind `done`. */
    void begin_late(const lora_unit_call *call, CheckedPorts<Unit> &ports) {
        set_announce(false);
        u().command_valid = 0;
        ports.drive();
        unit_.before(call, u());
    }

    bool by_abort(const lora_unit_call *call, CheckedPorts<Unit> &ports, const Progress &at) {
        uint32_t length = random_.once_in(4) ? random_.below(40) + 1 : 1;
        tally_.aborts++;
        tally_.aborts_announced += !at.started;
        tally_.aborts_with_reads += ports.under_way() > 0;
        tally_.aborts_with_read_left += ports.read_left();
        tally_.aborts_with_write_left += ports.write_left();
        tally_.aborts_in[unit_.state(u()) % LORA_RTL_STATES]++;
        u().abort_valid = 1;
        ports.stop(unit_.others);
        unit_.simulation.edge();
        set_announce(false);
        u().command_valid = 0;
        for (uint32_t i = 1; i < length; i++) {
            if (u().done) return fail("done behind an abort");
            ports.drive();
            unit_.before(call, u());
            unit_.simulation.edge();
        }
        u().abort_valid = 0;
        return settle(call, ports);
    }

    bool by_reset(const lora_unit_call *call, CheckedPorts<Unit> &ports) {
        uint32_t length = random_.below(3) + 1;
        tally_.resets++;
        tally_.resets_with_reads += ports.under_way() > 0;
        u().rst = 1;
        for (uint32_t i = 0; i < length; i++) {
            ports.reset();
            unit_.before(call, u());
            unit_.simulation.edge();
            set_announce(false);
            u().command_valid = 0;
            if (u().read_valid || u().write_valid) return fail("a request in reset");
        }
        u().rst = 0;
        u().line_valid = 0;
        return settle(call, ports);
    }

    /* Until the unit takes commands, and a few cycles more. */
    bool settle(const lora_unit_call *call, CheckedPorts<Unit> &ports) {
        uint32_t more = random_.below(4);
        u().command_valid = 0;
        set_announce(false);
        for (uint64_t i = 0; !idle() || more-- > 0; i++) {
            if (u().done) return fail("done, but nothing runs");
            if (idle() && ports.under_way()) return fail("idle, but reads are under way");
            ports.drive();
            unit_.before(call, u());
            unit_.simulation.edge();
            if (i > SETTLED) return fail("no command is taken any more");
        }
        if (ports.under_way()) return fail("idle, but reads are under way");
        return ports.error().empty() || fail(ports.error().c_str());
    }

    bool power_up() {
        uint32_t state = unit_.simulation.power_up(static_cast<uint32_t>(random_.next()),
                                                   unit_.state);
        tally_.power_ups++;
        tally_.states_at_power_up |= 1ull << state % LORA_RTL_STATES;
        return true;
    }

    bool begins_alike(const DisturbedMemory &memory, bool with_data) const {
        std::vector<NotedWrite> left = *expected_;
        for (const NotedWrite &one : memory.writes()) {
            auto alike = [&](const NotedWrite &wanted) {
                return one.same_place(wanted) && (!with_data || one.data == wanted.data);
            };
            auto end = !unit_.others && !left.empty() ? left.begin() + 1 : left.end();
            auto found = std::find_if(left.begin(), end, alike);
            if (found == end) return false;
            left.erase(found);
        }
        return true;
    }

    DisturbedUnit<Unit> unit_;
    KeptCall &other_;
    lora_rtl_disturbed &tally_;
    Random random_;
    const std::vector<NotedWrite> *expected_ =
        nullptr; /* null: this run is the one to compare with */
    uint32_t visits_[LORA_RTL_STATES] = {};
    uint64_t length_ = 0;
    std::string error_;
};

template <class Unit>
int run_disturbed(DisturbedUnit<Unit> unit, KeptCall &other, lora_unit_call *call, Disturbance &how,
                  lora_rtl_disturbed &counts, uint64_t *cycles) {
    DisturbedRun<Unit> run(unit, other, counts, how.random.next());
    int status = run.run(call, how.attempts, cycles);
    if (how.error.empty()) how.error = run.error();
    return status;
}

#endif

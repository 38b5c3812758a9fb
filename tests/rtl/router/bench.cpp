// Simulated Routers beside the emulator's: the same frames, bytes, counts and errors.
//   bench --cases N --seed S [--first I]      prints one JSON line
//   bench measure BOARDS ROWS COLUMNS LATENCY prints the cycles of a gather in a ring
#include "link_tests.hpp"
#include "measure.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

Tally tally;

void expect(const char *what, uint64_t found, uint64_t expected) {
    if (found != expected)
        throw std::runtime_error(std::string(what) + " is " + std::to_string(found) +
                                 ", expected " + std::to_string(expected));
}

void expect_bytes(const std::vector<uint8_t> &found, const std::vector<uint8_t> &expected) {
    for (size_t i = 0; i < expected.size(); i++)
        if (found[i] != expected[i])
            throw std::runtime_error("byte " + std::to_string(i) +
                                     " of the on-chip buffer differs");
}

// Frames of one source keep their order; those of two may leave in any.
std::map<uint8_t, std::vector<Frame>> by_source(const std::vector<Frame> &frames, uint32_t epoch) {
    std::map<uint8_t, std::vector<Frame>> sorted;
    for (const Frame &frame : frames) {
        lora_frame header = header_of(frame);
        if (header.kind == LORA_FRAME_DATA && header.epoch == epoch)
            sorted[header.source].push_back(frame);
    }
    return sorted;
}

void expect_frames(const std::vector<Frame> &found, const std::vector<Frame> &expected,
                   uint32_t epoch) {
    auto all = by_source(found, epoch), wanted = by_source(expected, epoch);
    for (auto &[source, frames] : wanted) {
        expect("number of frames of a source", all[source].size(), frames.size());
        for (size_t i = 0; i < frames.size(); i++)
            if (all[source][i] != frames[i])
                throw std::runtime_error("a frame differs: part " + std::to_string(i));
        tally["frames"] += frames.size();
    }
    expect("sources on a cable", all.size(), wanted.size());
}

void expect_sealed(const std::vector<Frame> &frames) {
    for (const Frame &frame : frames) {
        Frame sealed = frame;
        if (frame.size() < 36 || frame.size() != 36u + header_of(frame).length)
            throw std::runtime_error("a frame has another length than its header says");
        reference_seal(sealed.data());
        if (sealed != frame) throw std::runtime_error("the CRC of a frame does not hold");
        tally["poison_sent"] += header_of(frame).kind == LORA_FRAME_POISON;
    }
}

void expect_result(const reference_outcome &found, const reference_outcome &expected) {
    expect("state", found.state, expected.state);
    expect("sum", found.sum, expected.sum);
    expect("what it waits for", found.waits, expected.waits);
    for (uint32_t p = 0; p < LORA_PORTS; p++) {
        expect("frames sent by a port", found.sent_by[p], expected.sent_by[p]);
        expect("frames received by a port", found.received_by[p], expected.received_by[p]);
    }
    expect("frames sent", found.sent, expected.sent);
    expect("frames received", found.received, expected.received);
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
        expect("row groups of a segment", found.done[s], expected.done[s]);
}

// --- several boards ---

// Ends a run in the middle, in one of three ways, and begins the next.
uint32_t disturb(Cluster &cluster, const Scene &scene, Random &random) {
    uint32_t epoch = scene.epoch - 3;
    for (uint32_t i = random.once_in(2) ? 1 + random.below(3) : 0; i > 0; i--, epoch++) {
        if (cluster.run(epoch, 1 + random.below(random.once_in(2) ? 600 : 5000))) {
            tally["ended_before"]++;
            continue;
        }
        uint32_t how = random.below(3);
        if (how == 0) cluster.abort_all();
        else if (how == 1) cluster.reset_all();
        else cluster.poison(random.below(scene.boards));
        tally[how == 0 ? "aborts" : how == 1 ? "resets" : "poisons"]++;
    }
    return epoch;
}

void cluster_case(Random &random) {
    Scene scene = SceneMaker(random, false).make();
    Sent sent;
    std::vector<Outcome> wanted = Emulated(scene, sent).run();
    Cluster cluster(scene, random, tally);
    bool disturbed = disturb(cluster, scene, random) != scene.epoch - 3;
    uint64_t began = cluster.now();
    cluster.run(scene.epoch, 0);
    tally["cycles"] += cluster.now() - began;
    for (uint32_t b = 0; b < scene.boards; b++) {
        expect_bytes(cluster.onchip(b), wanted[b].onchip);
        for (size_t i = 0; i < wanted[b].results.size(); i++) {
            expect_result(cluster.results(b)[i], wanted[b].results[i]);
            if (disturbed) tally["stale"] += cluster.results(b)[i].dropped;
            else expect("frames dropped", cluster.results(b)[i].dropped, 0);
            tally["gathers"]++;
        }
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            expect_frames(cluster.sent.frames[b][p], sent.frames[b][p], scene.epoch);
            expect_sealed(cluster.sent.frames[b][p]);
        }
    }
    tally[std::to_string(scene.boards) + (scene.ring ? "_in_a_ring" : "_in_a_line")]++;
    if (scene.stage_boards) tally["stages"]++;
}

// --- one board, with faults ---

// Frames by port, however it ended.
void expect_counts(const Ending &found, uint32_t epoch) {
    uint32_t received = 0;
    for (uint32_t p = 0; p < LORA_PORTS; p++) {
        uint64_t sent = 0;
        for (auto &[source, frames] : by_source(found.sent[p], epoch)) sent += frames.size();
        expect("frames that left by a port", found.result.sent_by[p], sent);
        received += found.result.received_by[p];
    }
    expect("frames that came", received, found.result.received);
}

// The far ends take nothing: a Router that still has to send says so.
void compare_full(const Ending &found, const Ending &wanted, const Single &single) {
    expect("state", found.result.state, LORA_UNIT_BUSY);
    for (uint32_t p = 0; p < LORA_PORTS; p++) {
        bool blocked = found.result.sent_by[p] < wanted.sent[p].size();
        bool receives = found.result.received_by[p] < single.frames[p].size();
        expect("a port that is blocked", found.result.waits >> p & LORA_ROUTER_BLOCKED,
               blocked ? LORA_ROUTER_BLOCKED : 0);
        expect("a port that waits", found.result.waits >> p & LORA_ROUTER_RECEIVES, receives);
        tally["blocked"] += blocked;
        tally["blocked_and_waits"] += blocked && receives;
    }
}

void compare(const Ending &found, const Ending &wanted, uint32_t epoch) {
    if (found.result.state == LORA_UNIT_FAILED && wanted.result.state != LORA_UNIT_FAILED)
        expect("status", found.result.status, LORA_OK);
    expect("state", found.result.state, wanted.result.state);
    if (wanted.result.state == LORA_UNIT_FAILED) {
        expect("status", found.result.status, wanted.result.status);
        expect("port", found.result.port, wanted.result.port);
        tally["status_" + std::to_string(wanted.result.status)]++;
        return;
    }
    expect_result(found.result, wanted.result);
    expect("frames dropped", found.result.dropped, wanted.result.dropped);
    expect_bytes(found.onchip, wanted.onchip);
    for (uint32_t p = 0; p < LORA_PORTS; p++) expect_frames(found.sent[p], wanted.sent[p], epoch);
    if (wanted.result.state == LORA_UNIT_BUSY) tally["stuck"]++;
}

void single_case(Random &random) {
    Scene scene = SceneMaker(random, true).make();
    Sent sent;
    Emulated(scene, sent).run();
    uint32_t at = random.below(scene.boards);
    Gather gather = scene.gathers[at][0];
    bool refuses = random.once_in(4);
    uint32_t down = !refuses && random.once_in(12) ? 1 << random.below(2) : 0;
    if (refuses) change_command(random, gather);
    Single single(random, gather, scene.onchip[at], down);
    std::vector<uint32_t> ports; // with frames
    for (uint32_t p = 0, to = 0, to_port = 0; p < LORA_PORTS && !refuses; p++) {
        if (!scene.far_end(at, p, to, to_port)) continue;
        for (const Frame &frame : sent.frames[to][to_port])
            single.frames[p].push_back({frame, frame});
        if (!single.frames[p].empty()) ports.push_back(p);
    }
    std::string what = refuses ? "changed_command" : down ? "link_down" : "";
    single.full = what.empty() && random.once_in(6);
    if (what.empty() && !single.full && !ports.empty())
        what = Mutation(random, single.frames[ports[random.below(ports.size())]], gather).apply();
    Ending wanted = single.emulate();
    try {
        Ending found = single.simulate();
        expect_counts(found, gather.epoch);
        if (single.full && found.result.state != wanted.result.state)
            compare_full(found, wanted, single);
        else compare(found, wanted, gather.epoch);
    } catch (const std::exception &error) {
        throw std::runtime_error(what + ": " + error.what());
    }
    tally[what.empty() ? "unchanged" : what]++;
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 6 && std::string(argv[1]) == "measure") {
        uint32_t of[4];
        for (int i = 0; i < 4; i++)
            of[i] = static_cast<uint32_t>(std::strtoul(argv[2 + i], nullptr, 10));
        uint64_t cycles = measure(of[0], of[1], of[2], of[3]);
        std::printf("{\"cycles\": %llu}\n", static_cast<unsigned long long>(cycles));
        return 0;
    }
    uint64_t cases = 1, seed = 1, first = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (std::string(argv[i]) == "--cases") cases = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::string(argv[i]) == "--first") first = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::string(argv[i]) == "--seed") seed = std::strtoull(argv[i + 1], nullptr, 10);
    }
    for (uint64_t i = first; i < first + cases; i++) {
        Random random(seed * 1000003 + i);
        try {
            if (i % 3 == 0) cluster_case(random);
            else single_case(random);
            if (i % 6 == 1) LinkTest(random, tally).run_alone();
            if (i % 60 == 2) LinkTest(random, tally).run_joined();
        } catch (const std::exception &error) {
            std::fprintf(stderr, "case %llu of seed %llu: %s\n", static_cast<unsigned long long>(i),
                         static_cast<unsigned long long>(seed), error.what());
            return 1;
        }
    }
    std::printf("{\"cases\": %llu", static_cast<unsigned long long>(cases));
    for (auto &[name, count] : tally)
        std::printf(", \"%s\": %llu", name.c_str(), static_cast<unsigned long long>(count));
    std::printf("}\n");
    return 0;
}

#include "metastable.hpp"

#include <random>
#include <vector>

namespace metastable {

uint64_t now = 0, window = 0, torn = 0;

namespace {

struct Place {
    uint64_t value = 0, before = 0, changed = 0;
};

std::vector<Place> places;
std::mt19937_64 chance;

bool fresh(const Place &place) { return place.changed && now - place.changed < window; }

} // namespace

void seed(uint32_t value) { chance.seed(value); }

} // namespace metastable

using namespace metastable;

extern "C" {

int crossing_new() {
    places.emplace_back();
    return static_cast<int>(places.size()) - 1;
}

int crossing_note(int id, long long value) {
    Place &place = places[id];
    if (place.value == uint64_t(value)) return id;
    place.before = place.value;
    place.value = uint64_t(value);
    place.changed = now;
    return id;
}

long long crossing_take(int id, int) {
    const Place &place = places[id];
    uint64_t unsure = fresh(place) ? place.value ^ place.before : 0;
    if (!unsure) return static_cast<long long>(place.value);
    torn++;
    return static_cast<long long>(place.value ^ (unsure & chance()));
}

void crossing_written(int id) { places[id].changed = now; }

int crossing_age(int id) { return !fresh(places[id]); }

} // extern "C"

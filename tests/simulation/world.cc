// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/world.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace isopool::simulation {

namespace {

using std::chrono::hours;

constexpr size_t kMostViolations = 8;

}  // namespace

World::World(uint64_t seed) : chance(seed), now_(TimePoint{} + hours(1)), slow_(chance.oneIn(2)) {}

void World::add(Actor& actor) {
  actors_.push_back(&actor);
  actor.wakeAt(now_);
}

void World::remove(Actor& actor) { std::erase(actors_, &actor); }

void World::after(Microseconds delay, std::function<void()> event) {
  events_.emplace(now_ + delay, std::move(event));
}

Microseconds World::latency() {
  const uint64_t kind = chance.below(1000);
  if (kind < 600) return Microseconds(0);
  if (kind < 850 || !storm_) return chance.time(Microseconds(1), Microseconds(200));
  if (kind < 970) return chance.time(Microseconds(200), Microseconds(20'000));
  if (kind < 998 || !slow_) return chance.time(Microseconds(20'000), Microseconds(300'000));
  return chance.time(Microseconds(1'000'000), Microseconds(45'000'000));
}

void World::wakeByDescriptors() {
  std::vector<pollfd> watched;
  std::vector<Actor*> owners;
  std::vector<int> descriptors;
  for (Actor* actor : actors_) {
    if (actor->roused() || (actor->wake() && *actor->wake() <= now_)) continue;
    descriptors.clear();
    actor->appendDescriptors(descriptors);
    for (const int descriptor : descriptors) {
      watched.push_back({descriptor, POLLIN, 0});
      owners.push_back(actor);
    }
  }
  if (watched.empty() || ::poll(watched.data(), watched.size(), 0) <= 0) return;
  for (size_t i = 0; i < watched.size(); ++i) {
    if (watched[i].revents != 0 && !owners[i]->roused()) owners[i]->rouse(now_ + latency());
  }
}

bool World::step() {
  wakeByDescriptors();
  for (;;) {
    std::vector<Actor*> due;
    std::optional<TimePoint> next;
    for (Actor* actor : actors_) {
      if (!actor->wake()) continue;
      if (*actor->wake() <= now_) {
        due.push_back(actor);
      } else if (!next || *actor->wake() < *next) {
        next = actor->wake();
      }
    }
    const auto dueEvents =
        static_cast<size_t>(std::distance(events_.begin(), events_.upper_bound(now_)));
    const size_t choices = due.size() + dueEvents;
    if (choices == 0) {
      if (!events_.empty() && (!next || events_.begin()->first < *next)) {
        next = events_.begin()->first;
      }
      if (!next) return false;
      now_ = *next;
      continue;
    }
    ++steps_;
    const size_t chosen = chance.below(choices);
    if (chosen < due.size()) {
      due[chosen]->awake();
      due[chosen]->act();
      return true;
    }
    const auto event = std::next(events_.begin(), static_cast<ptrdiff_t>(chosen - due.size()));
    const auto happening = std::move(event->second);
    events_.erase(event);
    happening();
    return true;
  }
}

void World::note(const char* what, uint64_t first, uint64_t second) {
  static const bool tells = std::getenv("ISOPOOL_SIMULATION_TRACE") != nullptr;
  if (tells) {
    std::fprintf(stderr, "%12.6f %s %llu %llu\n",
                 std::chrono::duration<double>(now_.time_since_epoch()).count() - 3600, what,
                 static_cast<unsigned long long>(first), static_cast<unsigned long long>(second));
  }
  const auto mix = [this](uint64_t value) { trace_ = (trace_ ^ value) * 1099511628211u; };
  for (const char* letter = what; *letter != '\0'; ++letter) mix(static_cast<uint64_t>(*letter));
  mix(first);
  mix(second);
  mix(static_cast<uint64_t>(now_.time_since_epoch().count()));
}

void World::violated(const std::string& claim) {
  note("violated");
  if (violations_.size() < kMostViolations) violations_.push_back(claim);
}

}  // namespace isopool::simulation

// SPDX-License-Identifier: BSD-3-Clause
// Writes the behaviour of the shipped SlotTable as Promela: drives it through every event from
// every state that it can reach, with two slots and a spare, and writes the transitions of each
// event. supervisor.pml has the processes that cause the events.
//
// Stops with exit code 1 if closing the pool in any of these states leaves a worker.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "supervisor/pool/slot_table.h"

namespace isopool::supervisor {
namespace {

constexpr uint32_t kSlots = 2;
constexpr uint32_t kPlaces = kSlots + 1;  // the spare's place is the last
constexpr base::PoolId kPool{1};
constexpr RestartLimits kLimits{3, base::Milliseconds(30'000), base::Milliseconds(30'000)};

enum class Status : uint8_t { kMaking, kUsable, kWaiting };
enum class Event : uint8_t { kUsable, kLostBarren, kLostAfterService, kNotMade, kRelieve, kTick };
constexpr std::array<const char*, 6> kEventNames{"worker_usable",
                                                 "worker_lost_barren",
                                                 "worker_lost_after_service",
                                                 "worker_not_made",
                                                 "relieve",
                                                 "tick"};

struct Happening {
  Event event;
  uint32_t place;  // unused by kTick
};

/// Records the existing workers, and numbers them in the order of the requests.
class NotingEffects : public SlotTableEffects {
 public:
  base::Epoch startWorker(bool, uint32_t) override {
    workers.insert(++last_);
    return base::Epoch(last_);
  }
  void retireWorker(base::Epoch epoch) override { workers.erase(epoch.value); }
  void assignWorker(const Slot&, base::Epoch) override {}
  void slotQuarantined(const Quarantine&) override {}
  void spareQuarantined(uint32_t, base::Milliseconds) override {}
  std::set<uint64_t> workers;

 private:
  uint64_t last_ = 0;
};

using Statuses = std::array<Status, kPlaces>;

/// A slot table, and the events that it has received.
class DrivenSlotTable {
 public:
  DrivenSlotTable() { slotTable_.openPool(kPool, kSlots); }

  Statuses statuses() const {
    Statuses found;
    found.fill(Status::kWaiting);
    for (const uint64_t worker : effects_.workers) {
      const auto assignment = slotTable_.assignmentOf(base::Epoch(worker));
      if (assignment)
        found[placeOf(*assignment)] = assignment->usable ? Status::kUsable : Status::kMaking;
    }
    return found;
  }
  /// False if the event is impossible in this state.
  bool bring(const Happening& happening) {
    now_ += base::Milliseconds(1);
    if (happening.event == Event::kTick) {
      const auto next = slotTable_.nextTick();
      if (!next) return false;
      now_ = std::max(now_, *next);
      slotTable_.tick(now_);
      return true;
    }
    const auto worker = workerAt(happening.place);
    if (!worker) return false;
    const bool usable = slotTable_.assignmentOf(*worker)->usable;
    auto& deaths = earlyExits_[happening.place];
    switch (happening.event) {
      case Event::kUsable:
        if (usable) return false;
        slotTable_.workerUsable(*worker);
        return true;
      case Event::kLostBarren:
        slotTable_.workerLost(*worker, ExitKind::kBeforeFirstCall, now_);
        effects_.workers.erase(worker->value);
        deaths = std::min<uint32_t>(deaths + 1, kLimits.deaths + 1);
        return true;
      case Event::kLostAfterService:
        if (!usable) return false;
        slotTable_.workerLost(*worker, ExitKind::kAfterCall, now_);
        effects_.workers.erase(worker->value);
        deaths = 0;
        return true;
      case Event::kNotMade:
        if (usable) return false;
        slotTable_.workerNotMade(*worker);
        effects_.workers.erase(worker->value);
        return true;
      case Event::kRelieve:
        if (!slotTable_.relieve(*worker)) return false;
        effects_.workers.erase(worker->value);  // it has left the table
        return true;
      case Event::kTick:
        break;
    }
    return false;
  }
  bool closingLeavesAWorker() {
    slotTable_.closePool(kPool);
    return !effects_.workers.empty();
  }
  /// States that behave the same: where the places are, and how close each is to a quarantine.
  auto key() const { return std::tuple(statuses(), earlyExits_); }

 private:
  static uint32_t placeOf(const SlotTable::SlotAssignment& assignment) {
    return assignment.slot ? assignment.slot->index : kSlots;
  }
  std::optional<base::Epoch> workerAt(uint32_t place) const {
    for (const uint64_t worker : effects_.workers) {
      const auto assignment = slotTable_.assignmentOf(base::Epoch(worker));
      if (assignment && placeOf(*assignment) == place) return base::Epoch(worker);
    }
    return std::nullopt;
  }

  NotingEffects effects_;
  SlotTable slotTable_{effects_, 1, kLimits, 1};
  base::TimePoint now_{};
  std::array<uint32_t, kPlaces> earlyExits_{};
};

using Path = std::vector<Happening>;
using Transition = std::tuple<Event, uint32_t, Statuses, Statuses>;

void drive(DrivenSlotTable& slotTable, const Path& path) {
  for (const Happening& happening : path) slotTable.bring(happening);
}

std::vector<Happening> allHappenings() {
  std::vector<Happening> all{{Event::kTick, 0}};
  for (uint32_t place = 0; place < kPlaces; ++place) {
    for (uint8_t event = 0; event < static_cast<uint8_t>(Event::kTick); ++event) {
      all.push_back({static_cast<Event>(event), place});
    }
  }
  return all;
}

struct Explored {
  std::set<Transition> transitions;
  size_t states = 0;
  bool closingHolds = true;
};

Explored explore() {
  Explored explored;
  std::set<decltype(DrivenSlotTable().key())> seen;
  std::deque<Path> frontier{{}};
  seen.insert(DrivenSlotTable().key());
  while (!frontier.empty()) {
    const Path path = std::move(frontier.front());
    frontier.pop_front();
    DrivenSlotTable closing;
    drive(closing, path);
    if (closing.closingLeavesAWorker()) explored.closingHolds = false;
    for (const Happening& happening : allHappenings()) {
      DrivenSlotTable slotTable;
      drive(slotTable, path);
      const Statuses from = slotTable.statuses();
      if (!slotTable.bring(happening)) continue;
      explored.transitions.insert({happening.event, happening.place, from, slotTable.statuses()});
      if (!seen.insert(slotTable.key()).second) continue;
      frontier.push_back(path);
      frontier.back().push_back(happening);
    }
  }
  explored.states = seen.size();
  return explored;
}

void write(const Explored& explored) {
  std::printf(
      "/* Written by slot_table_transitions.cc from supervisor/pool/slot_table: %zu states, %zu "
      "transitions. "
      "*/\n",
      explored.states, explored.transitions.size());
  for (size_t event = 0; event < kEventNames.size(); ++event) {
    std::printf("\ninline %s(at) {\n  if\n", kEventNames[event]);
    for (const auto& [made, place, from, to] : explored.transitions) {
      if (static_cast<size_t>(made) != event) continue;
      std::printf("  :: at == %u", place);
      for (uint32_t i = 0; i < kPlaces; ++i) {
        std::printf(" && place[%u] == %u", i, static_cast<unsigned>(from[i]));
      }
      std::printf(" ->");
      for (uint32_t i = 0; i < kPlaces; ++i) {
        std::printf("%s place[%u] = %u", i == 0 ? "" : ";", i, static_cast<unsigned>(to[i]));
      }
      std::printf("\n");
    }
    std::printf("  fi\n}\n");
  }
}

}  // namespace
}  // namespace isopool::supervisor

int main() {
  const auto explored = isopool::supervisor::explore();
  if (!explored.closingHolds) {
    std::fprintf(stderr, "slot_table_transitions: closing a pool leaves a worker\n");
    return 1;
  }
  isopool::supervisor::write(explored);
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "supervisor/processes/restart_policy.h"

namespace isopool::supervisor {

/// One slot of one pool.
struct Slot {
  base::PoolId pool;
  uint32_t index = 0;
  bool operator==(const Slot&) const = default;
};

struct Quarantine {
  Slot slot;
  uint32_t deaths = 0;
  base::Milliseconds duration{0};
};

/// What a slot table decides, to be carried out by its owner. None of these may call the slot table
/// back.
class SlotTableEffects {
 public:
  virtual ~SlotTableEffects() = default;
  /// Starts making a worker; it is reported by workerUsable() or workerLost() later.
  virtual base::Epoch startWorker(bool spare) = 0;
  /// The worker is no longer wanted. Its death needs no report.
  virtual void retireWorker(base::Epoch epoch) = 0;
  /// The slot is served by this usable worker from now on.
  virtual void assignWorker(const Slot& slot, base::Epoch epoch) = 0;
  virtual void slotQuarantined(const Quarantine& quarantine) = 0;
  virtual void spareQuarantined(uint32_t deaths, base::Milliseconds duration) = 0;
};

/// Which worker serves which slot of a group, and which is the spare: a pure state machine. The
/// caller brings events and the time; decisions go to SlotTableEffects. supervisor/README.md has
/// the table of states and events.
///
/// A place is a slot or a spare's place. Each holds at most one worker, being made or usable; an
/// empty place waits for its time to try again. When a slot and a spare exchange workers, each
/// place keeps its own record of deaths.
class SlotTable {
 public:
  SlotTable(SlotTableEffects& effects, uint32_t spares, const RestartLimits& limits);

  /// Makes the pool's slots and asks for all their workers, then for the spares'.
  void openPool(base::PoolId pool, uint32_t workers);
  /// Retires the pool's workers; with the last pool the spares go too.
  void closePool(base::PoolId pool);
  bool hasPool(base::PoolId pool) const;

  void workerUsable(base::Epoch epoch);
  /// The worker is dead or as good as dead. Returns for how long its place stays empty. Unknown
  /// epochs (retired, lost before) are ignored.
  base::Milliseconds workerLost(base::Epoch epoch, ExitKind death, base::TimePoint now);
  /// The worker was not made, and it is not its place's fault (the zygote died): another is asked
  /// for at once.
  void workerNotMade(base::Epoch epoch);

  /// A ready spare takes the slot of this worker, which is on its own from now on: its death needs
  /// no report. False, and nothing changes, if it serves no slot or no spare is ready.
  bool relieve(base::Epoch epoch);

  /// Tries again where the time has come.
  void tick(base::TimePoint now);
  /// When tick() is due next.
  std::optional<base::TimePoint> nextTick() const;

  struct SlotAssignment {
    std::optional<Slot> slot;  ///< none: a spare's
    bool usable = false;
  };
  std::optional<SlotAssignment> assignmentOf(base::Epoch epoch) const;
  std::vector<Slot> slotsOf(base::PoolId pool) const;
  /// Slots that no usable worker serves.
  std::vector<Slot> unservedSlots() const;
  /// Slots that stay empty for a while because their workers kept dying, with the time that is
  /// left.
  std::vector<Quarantine> quarantinedSlots(base::TimePoint now) const;
  /// True if some pool has not one usable worker.
  bool poolWithoutWorker() const;

 private:
  struct SlotEntry {
    std::optional<Slot> slot;
    RestartPolicy policy;
    std::optional<base::Epoch> worker;
    bool usable = false;
    std::optional<base::TimePoint> retryAt;
    bool quarantined = false;  ///< that is what it waits for
  };

  void fill(SlotEntry& entry);
  bool promoteSpare(SlotEntry& entry);
  SlotEntry* find(base::Epoch epoch);
  const SlotEntry* find(base::Epoch epoch) const;

  SlotTableEffects& effects_;
  const uint32_t spares_;
  const RestartLimits limits_;
  std::map<base::PoolId, std::vector<SlotEntry>> pools_;
  std::vector<SlotEntry> spareEntries_;
};

}  // namespace isopool::supervisor

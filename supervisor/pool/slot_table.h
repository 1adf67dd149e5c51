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

/// The name of one slot of one pool.
struct Slot {
  base::PoolId pool;
  uint32_t index = 0;
  bool operator==(const Slot&) const = default;
};

/// A slot for which no worker is started for a while, because its workers kept dying.
struct Quarantine {
  Slot slot;
  uint32_t deaths = 0;             ///< early deaths in a row
  base::Milliseconds duration{0};  ///< from now on

  std::string text() const;
};

/// The decisions of a slot table, for its owner to carry out. These functions must not call the
/// slot table.
class SlotTableEffects {
 public:
  virtual ~SlotTableEffects() = default;
  /// Starts a worker and returns its epoch, one that was never used. The owner reports the result
  /// later by workerUsable(), workerLost() or workerNotMade(). `spare`: no slot waits for it.
  /// `gpu`: the GPU of its place.
  virtual base::Epoch startWorker(bool spare, uint32_t gpu) = 0;
  /// Ends a worker that no place needs. Its death needs no report.
  virtual void retireWorker(base::Epoch epoch) = 0;
  /// Makes this usable worker serve the slot. The slot's earlier worker, if any, no longer does.
  virtual void assignWorker(const Slot& slot, base::Epoch epoch) = 0;
  /// Reports that a slot stays empty, to operators and clients.
  virtual void slotQuarantined(const Quarantine& quarantine) = 0;
  /// Reports that a spare's place stays empty.
  virtual void spareQuarantined(uint32_t deaths, base::Milliseconds duration) = 0;
};

/// Decides which worker serves which slot of a group, and which is the spare. A pure state machine:
/// the caller passes events and the time, and decisions go to SlotTableEffects.
/// supervisor/README.md has the table of states and events. Not thread-safe.
///
/// A place is a slot or a spare's place. Each holds at most one worker, which is starting or
/// usable; an empty place has a time at which it tries again. When a slot and a spare exchange
/// workers, each place keeps its own record of deaths.
///
/// A place is for one GPU, and so is its worker: a worker can't change it once it has loaded a
/// model. Each slot gets the GPU that the fewest slots of the group have, the first of several. A
/// spare takes only slots of its GPU, so each GPU that a slot has gets spares of its own.
class SlotTable {
 public:
  /// `spares`: of the whole group, for each of the `gpus` (at least 1: a table that does not
  /// distinguish them has one). `effects` must outlive the table.
  SlotTable(SlotTableEffects& effects, uint32_t spares, const RestartLimits& limits, uint32_t gpus);

  /// Makes the pool's slots and starts all their workers, then the spares. A spare that is ready
  /// already takes a slot at once. The pool must not be open.
  void openPool(base::PoolId pool, uint32_t workers);
  /// Retires the pool's workers; with the last pool the spares, too.
  void closePool(base::PoolId pool);
  bool hasPool(base::PoolId pool) const;
  /// Gives an open pool this many slots. New slots get workers as those of openPool(). The last
  /// slots are removed: workers of these that are not usable are retired; the usable ones are
  /// returned and belong to no place any more, and their deaths need no report.
  std::vector<base::Epoch> resizePool(base::PoolId pool, uint32_t workers);

  /// The worker is ready: it gets its place's slot, or becomes a ready spare, or takes a slot that
  /// has no worker yet. Ignores unknown epochs.
  void workerUsable(base::Epoch epoch);
  /// The worker is dead, or is being killed. Returns for how long its place stays empty; 0 if
  /// another worker serves it or is started. Ignores unknown epochs (retired, lost before).
  base::Milliseconds workerLost(base::Epoch epoch, ExitKind death, base::TimePoint now);
  /// The zygote died before it forked the worker: this starts another one, and does not count as a
  /// death of the place.
  void workerNotMade(base::Epoch epoch);

  /// Gives the slot of this worker to a ready spare. The worker then belongs to no place, and its
  /// death needs no report. Returns false if the worker serves no slot, or no spare of its GPU is
  /// ready. In a group without spares it then starts one: a later call succeeds when that one is
  /// ready. It is kept only until it takes a slot.
  bool relieve(base::Epoch epoch);

  /// Fills empty places whose time to try again has come.
  void tick(base::TimePoint now);
  /// The time of the next necessary tick(); nothing if no place waits.
  std::optional<base::TimePoint> nextTick() const;

  struct SlotAssignment {
    std::optional<Slot> slot;  ///< nothing: a spare's place
    bool usable = false;       ///< workerUsable() was called
  };
  /// The place of a worker; nothing if no place holds it.
  std::optional<SlotAssignment> assignmentOf(base::Epoch epoch) const;
  /// In the order of their indices; empty if the pool is not open.
  std::vector<Slot> slotsOf(base::PoolId pool) const;
  /// Slots that no usable worker serves.
  std::vector<Slot> unservedSlots() const;
  /// Slots in quarantine, with the time that is left.
  std::vector<Quarantine> quarantinedSlots(base::TimePoint now) const;
  /// How many spares the table keeps.
  size_t spares() const { return spares_ == 0 ? 0 : spareEntries_.size(); }
  /// True if there is a pool without any usable worker.
  bool poolWithoutWorker() const;

 private:
  struct SlotEntry {
    std::optional<Slot> slot;
    uint32_t gpu = 0;
    RestartPolicy policy;
    std::optional<base::Epoch> worker;
    bool usable = false;
    std::optional<base::TimePoint> retryAt;
    bool quarantined = false;  ///< `retryAt` is the end of a quarantine
  };

  SlotEntry newEntry(std::optional<Slot> slot, uint32_t gpu) const;
  uint32_t gpuWithFewestSlots() const;
  /// Makes, fills and removes places of spares, so that each GPU that a slot has gets its number of
  /// them.
  void adjustSpares();
  void fill(SlotEntry& entry);
  bool promoteSpare(SlotEntry& entry);
  SlotEntry* find(base::Epoch epoch);
  const SlotEntry* find(base::Epoch epoch) const;

  SlotTableEffects& effects_;
  const uint32_t spares_;
  const RestartLimits limits_;
  const uint32_t gpus_;
  std::map<base::PoolId, std::vector<SlotEntry>> pools_;
  std::vector<SlotEntry> spareEntries_;  // with spares_ 0, too: see relieve()
};

}  // namespace isopool::supervisor

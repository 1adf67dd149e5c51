// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "supervisor/memory_stock.h"
#include "supervisor/timer.h"

namespace isopool::supervisor {

/// One worker's channel to one client, as far as the supervisor goes: its memory, and how far both
/// sides are with it. Reads the counters in it by pread, so that nobody can make it fault.
class Attachment {
 public:
  enum class Stage {
    kIntroduced,  ///< the client was told
    kAttaching,   ///< the worker was told
    kUsable,
    kDetaching  ///< the worker was told to forget the client, and has not said that it has
  };

  Attachment(EventLoop& loop, ChannelMemory memory);

  /// True while the worker has to hear of packages and segments.
  bool listening() const { return stage == Stage::kAttaching || stage == Stage::kUsable; }
  bool usable() const { return stage == Stage::kUsable; }

  /// Room for another output segment: its number, or none if `limit` would be passed.
  std::optional<uint32_t> reserveSegment(uint64_t bytes, uint64_t limit);
  void releaseSegment(uint64_t bytes) { outputBytes_ -= bytes; }
  uint64_t outputBytes() const { return outputBytes_; }
  uint64_t sharedBytes() const;

  /// Calls completed, as the worker says.
  uint64_t completedCalls() const;
  /// Requests published that the worker has not taken yet, as both say.
  uint32_t queuedCalls() const;
  /// The last call of which user code may have run, as the worker says.
  uint64_t startedSequence() const;
  /// Objects that the client's handles refer to, and what these keep of the worker's own memory, as the
  /// worker says.
  uint64_t handles() const;
  uint64_t handleBytes() const;

  ChannelMemory memory;
  Stage stage = Stage::kIntroduced;
  Timer deadline;  ///< of attaching, or of detaching
  Timer overdue;   ///< the grace of a call past its deadline
  uint64_t overdueSequence = 0;
  /// Packages that the client has dropped and the worker has not been told of yet; true for those that
  /// it has mapped. They are told when nothing else waits for the worker.
  std::map<uint32_t, bool> droppedPackages;

 private:
  uint64_t outputBytes_;
  uint32_t lastSegment_ = 1;
};

}  // namespace isopool::supervisor

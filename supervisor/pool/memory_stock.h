// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "base/fd.h"
#include "base/loop/event_loop.h"
#include "base/weak_self.h"

namespace isopool::supervisor {

/// The memory objects of one channel. A set is never used for a second channel.
struct ChannelMemory {
  base::Fd clientControl;
  base::Fd workerControl;
  base::Fd output;
  uint64_t outputBytes = 0;
};

/// Makes shared memory, in advance if possible: allocating pages costs about 0.6 ms per MB, and a
/// caller waits for a replacement worker. Allocates in a background thread, so that the event loop
/// never waits; callbacks run on the loop. All functions must be called on the loop's thread. May
/// be destroyed while an allocation is in progress; callbacks of take() that wait for one, and of
/// makeSegment(), are still called then.
class MemoryStock {
 public:
  /// Receives a segment, or an invalid descriptor and the reason of the failure.
  using SegmentMade = std::function<void(base::Fd segment, const std::string& error)>;

  /// Receives a set, or an empty set and the reason of the failure.
  using Taken = std::function<void(ChannelMemory memory, const std::string& error)>;

  /// Keeps `atRest` sets, each with `outputBytes` for results, while no worker is expected.
  MemoryStock(base::EventLoop& loop, uint64_t outputBytes, uint32_t atRest);

  /// Announces a take(): a worker is being started. The stock makes as many sets as are expected.
  void expectWorker();
  /// Withdraws one announcement: that worker will not take() a set.
  void cancelExpectation();
  /// Gives a set: calls `taken` before it returns if a set is ready, else when one has been made.
  /// If many wait, as when each of many clients needs a channel to each of several new workers, the
  /// sets have little memory for results: the worker asks for more when a result needs it.
  void take(Taken taken);

  /// Makes one segment and then calls `made`.
  void makeSegment(uint64_t bytes, SegmentMade made);

 private:
  void replenish();
  void make(uint64_t outputBytes, Taken taken);

  base::EventLoop& loop_;
  const uint64_t outputBytes_;
  const uint32_t atRest_;
  std::deque<ChannelMemory> ready_;
  uint32_t making_ = 0;
  uint32_t waiting_ = 0;  ///< calls of take() without a set
  uint32_t expected_ = 0;
  /// Weak handle to this object for callbacks that are still pending: they may outlive it.
  base::WeakSelf<MemoryStock> self_;
};

}  // namespace isopool::supervisor

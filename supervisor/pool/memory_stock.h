// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/loop/event_loop.h"

namespace isopool::supervisor {

/// The memory objects of one channel, fresh and never used before.
struct ChannelMemory {
  base::Fd clientControl;
  base::Fd workerControl;
  base::Fd output;
  uint64_t outputBytes = 0;
};

/// Makes shared memory, ahead of time where it can: allocating pages costs about 0.6 ms per MB, and
/// a caller waits for a replacement worker. The work is done beside the event loop, which
/// never waits for it; results come back on the loop.
class MemoryStock {
 public:
  using SegmentMade = std::function<void(base::Fd segment, const std::string& error)>;

  /// Receives a set on the loop, or the reason why there is none.
  using Taken = std::function<void(ChannelMemory memory, const std::string& error)>;

  /// Keeps `atRest` sets in hand at rest.
  MemoryStock(base::EventLoop& loop, uint64_t outputBytes, uint32_t atRest);

  /// A worker is being made that will take() soon; cancelled if it never will.
  void expectWorker();
  void cancelExpectation();
  /// Gives a set: before this returns if one is in hand, else when it is made.
  void take(Taken taken);

  /// Makes one segment and calls `made` on the loop, with an error text if there is no memory.
  void makeSegment(uint64_t bytes, SegmentMade made);

 private:
  void replenish();
  void make(Taken taken);

  base::EventLoop& loop_;
  const uint64_t outputBytes_;
  const uint32_t atRest_;
  std::deque<ChannelMemory> ready_;
  uint32_t making_ = 0;
  uint32_t expected_ = 0;
  /// Handlers on their way hold it weakly: they outlive the stock.
  std::shared_ptr<MemoryStock*> self_;
};

}  // namespace isopool::supervisor

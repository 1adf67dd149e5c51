// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "client/transport/control_writer.h"

namespace isopool::client {

/// Whether a connection's control thread checks ten times a second for work that hangs and that no
/// thread waits for. The watch is on only while such work exists: an idle program has no wake-ups.
/// One per connection; the links of its workers share it.
class UnawaitedWatch {
 public:
  /// `writer` wakes the control thread.
  explicit UnawaitedWatch(std::shared_ptr<ControlWriter> writer) : writer_(std::move(writer)) {}

  /// Call after work was added. Any thread. Does not block. Costs one load while the watch is on.
  void begin() {
    if (!on_.load() && !on_.exchange(true)) writer_->wake();
  }

  // For the control thread.

  bool on() const { return on_.load(std::memory_order_relaxed); }
  /// Calls `look`, which returns true while work is left, and switches the watch off if none is.
  template <typename Look>
  void run(Look&& look) {
    // Off before the call: work that is added after `look` has looked switches the watch on again.
    on_.store(false);
    if (look()) on_.store(true);
  }

 private:
  const std::shared_ptr<ControlWriter> writer_;
  std::atomic<bool> on_{false};
};

}  // namespace isopool::client

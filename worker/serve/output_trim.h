// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "worker/serve/client_link.h"

namespace isopool::worker {

/// Decides when memory for results goes back to the system: what has been free for kIdleTime to
/// twice that time, and what a client wants back at once. Clients return blocks without a
/// notification, so the worker looks while it has more memory than it had from the start. Memory
/// goes back in steps of some 0.2 ms; a call that waits comes first. The call loop's thread, with
/// the GIL.
class OutputTrim {
 public:
  static constexpr std::chrono::nanoseconds kIdleTime{2'000'000'000};

  /// To be called when some output arena has a further segment.
  void grown(int64_t now) noexcept;
  /// All that is free for this client is to go back, between two calls.
  void request(ClientLink& channel, int64_t now) noexcept;

  /// When run() is to be called, by ipc::monotonicNow(); nullopt: no output arena exceeds its
  /// reserve.
  std::optional<int64_t> due() const noexcept;
  /// Returns memory until `interrupted`, but at least one step.
  void run(std::span<const std::unique_ptr<ClientLink>> channels,
           const std::function<bool()>& interrupted);

 private:
  int64_t idleAt_ = 0;  // when what is idle by then goes back; 0: never
  int64_t stepAt_ = 0;  // when a trim that a call has interrupted, or a requested one, goes on
};

}  // namespace isopool::worker

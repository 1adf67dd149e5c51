// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ipc/channel/copy_reason.h"

namespace isopool::worker {

/// Bytes of tensors that were copied, by reason. One object counts for a call, another one for the
/// life of the worker. For one thread. Cheap for the usual call, which copies nothing.
class CopyCounts {
 public:
  static constexpr size_t kReasons = static_cast<size_t>(ipc::CopyReason::kCount);

  void count(ipc::CopyReason reason, size_t bytes) {
    bytes_[static_cast<size_t>(reason)] += bytes;
    any_ = any_ || bytes > 0;
  }
  void add(const CopyCounts& other) {
    if (!other.any_) return;
    for (size_t i = 0; i < kReasons; ++i) bytes_[i] += other.bytes_[i];
    any_ = true;
  }
  void clear() {
    if (any_) *this = CopyCounts();
  }

  /// True if a byte was counted since the last clear().
  bool any() const { return any_; }
  /// Bytes for one ipc::CopyReason, by its number, which is less than kReasons.
  uint64_t of(size_t reason) const { return bytes_[reason]; }

 private:
  std::array<uint64_t, kReasons> bytes_{};
  bool any_ = false;
};

}  // namespace isopool::worker

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "ipc/memory/memory_object.h"

namespace isopool::worker {

/// An upper bound for segment numbers: a larger number is an error or an attack.
inline constexpr uint32_t kMaxInputSegments = 1u << 20;

/// One segment of a client's input arena. It is mapped writable, so that the caller sees in-place
/// operations on an input, as in one process.
struct InputSegment {
  base::SegmentId id;
  base::Fd object;
  ipc::Mapping mapping;
  /// When the client has removed the segment: the storages that still use its addresses, with
  /// private pages. For BorrowedStorages, under its mutex.
  size_t rangesLeft = 0;
};

/// The segments of one client's input arena. The call loop's thread. The client may change the
/// content of a segment at any time.
class InputSegments {
 public:
  /// Maps a segment. The caller has checked its number, size and seals. Throws SystemCallError;
  /// then find() does not have it.
  void add(base::SegmentId id, base::Fd object, size_t bytes);
  /// Takes out a segment that the client has removed, and forgets its refusal; null if it is not
  /// mapped. A further segment may have the same number.
  std::unique_ptr<InputSegment> remove(base::SegmentId id) noexcept;
  /// Null if the segment is not mapped. `id` may be any number. Valid until remove().
  InputSegment* find(base::SegmentId id) const noexcept {
    return id.value < byId_.size() ? byId_[id.value].get() : nullptr;
  }

  /// Notes that the supervisor refused this segment to the client, with the reason in `text`.
  void refuse(base::SegmentId id, std::string text);
  /// The reason of the latest refusal if this segment was refused; else null.
  const std::string* refusal(base::SegmentId id) const noexcept {
    return id.value < refused_.size() && refused_[id.value] ? &refusal_ : nullptr;
  }

  /// By segment number, with nulls.
  const std::vector<std::unique_ptr<InputSegment>>& all() const noexcept { return byId_; }

 private:
  std::vector<std::unique_ptr<InputSegment>> byId_;  // numbered from 1; null: not mapped
  std::vector<bool> refused_;                        // one bit each: many segments may be refused
  std::string refusal_;
};

}  // namespace isopool::worker

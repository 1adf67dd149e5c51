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

/// No client has as many; a larger number is a mistake or malice.
inline constexpr uint32_t kMaxInputSegments = 1u << 20;

/// One segment of a client's input arena, mapped writable: in-place operations on an input reach
/// the caller, as they do in one process.
struct InputSegment {
  base::SegmentId id;
  base::Fd object;
  ipc::Mapping mapping;
};

/// The segments of one client's input arena. The call loop's thread.
class InputSegments {
 public:
  /// Throws SystemCallError.
  void add(base::SegmentId id, base::Fd object, size_t bytes);
  /// Null if the segment is not mapped.
  InputSegment* find(base::SegmentId id) const noexcept {
    return id.value < byId_.size() ? byId_[id.value].get() : nullptr;
  }

  /// The supervisor does not let the client have this segment, for the reason in `text`.
  void refuse(base::SegmentId id, std::string text);
  /// Why the client may not have that segment, in the words for the last one; null if it was not
  /// refused.
  const std::string* refusal(base::SegmentId id) const noexcept {
    return id.value < refused_.size() && refused_[id.value] ? &refusal_ : nullptr;
  }

  const std::vector<std::unique_ptr<InputSegment>>& all() const noexcept { return byId_; }

 private:
  std::vector<std::unique_ptr<InputSegment>> byId_;  // clients count from 1; unmapped ones are null
  std::vector<bool> refused_;  // one bit each: a client may have many of them refused
  std::string refusal_;
};

}  // namespace isopool::worker

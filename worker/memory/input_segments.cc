// SPDX-License-Identifier: BSD-3-Clause
#include "worker/memory/input_segments.h"

#include <utility>

namespace isopool::worker {

void InputSegments::add(base::SegmentId id, base::Fd object, size_t bytes) {
  if (id.value >= byId_.size()) byId_.resize(id.value + 1);
  auto segment = std::make_unique<InputSegment>();
  segment->id = id;
  segment->mapping = ipc::mapShared(object, 0, bytes, ipc::Access::kReadWrite, ipc::Prefault::kNo);
  segment->object = std::move(object);
  byId_[id.value] = std::move(segment);
}

std::unique_ptr<InputSegment> InputSegments::remove(base::SegmentId id) noexcept {
  if (id.value < refused_.size()) refused_[id.value] = false;
  return id.value < byId_.size() ? std::move(byId_[id.value]) : nullptr;
}

void InputSegments::refuse(base::SegmentId id, std::string text) {
  if (id.value > kMaxInputSegments) return;  // no valid call names such a segment
  if (id.value >= refused_.size()) refused_.resize(id.value + 1);
  refused_[id.value] = true;
  refusal_ = std::move(text);
}

}  // namespace isopool::worker

// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/chunk_progress.h"

namespace isopool::batch {

ChunkProgress::ChunkProgress(uint32_t items, uint32_t batch, uint32_t retries)
    : states_(items, State::kPending),
      attempts_(items, 0),
      begins_(size_t{items} + 1, false),
      retries_(retries) {
  for (uint64_t item = 0; item <= items; item += batch) begins_[item] = true;
}

void ChunkProgress::set(uint32_t item, State state) {
  if (states_[item] == State::kDone) --done_;
  states_[item] = state;
  if (state == State::kDone) ++done_;
  if (state == State::kPending && item < firstPending_) firstPending_ = item;
}

void ChunkProgress::leaveOut(uint32_t item) {
  if (item < items()) set(item, State::kLeftOut);
}

void ChunkProgress::opened(const std::vector<ItemRange>& recovered) {
  std::vector<bool> has(states_.size(), false);
  for (const ItemRange& range : recovered) {
    for (uint64_t item = range.first; item < uint64_t{range.first} + range.count; ++item) {
      if (item < has.size()) has[item] = true;
    }
  }
  for (uint32_t item = 0; item < items(); ++item) {
    if (states_[item] != State::kLeftOut) set(item, has[item] ? State::kDone : State::kPending);
  }
}

std::optional<ItemRange> ChunkProgress::next() {
  while (firstPending_ < items() && states_[firstPending_] != State::kPending) ++firstPending_;
  if (firstPending_ == items()) return std::nullopt;
  uint32_t end = firstPending_ + 1;
  while (end < items() && !begins_[end] && states_[end] == State::kPending) ++end;
  return ItemRange{firstPending_, end - firstPending_};
}

void ChunkProgress::succeeded(ItemRange range) {
  for (uint32_t item = range.first; item < range.first + range.count; ++item) {
    set(item, State::kDone);
  }
}

std::optional<uint32_t> ChunkProgress::failed(ItemRange range, std::optional<uint32_t> culprit) {
  if (range.count == 1) culprit = range.first;
  if (!culprit || *culprit < range.first || *culprit >= range.first + range.count) {
    begins_[range.first + range.count / 2] = true;
    return std::nullopt;
  }
  begins_[*culprit] = true;
  begins_[*culprit + 1] = true;
  if (++attempts_[*culprit] <= retries_) return std::nullopt;
  set(*culprit, State::kLeftOut);
  return culprit;
}

void ChunkProgress::suspectAll() { begins_.assign(begins_.size(), true); }

}  // namespace isopool::batch

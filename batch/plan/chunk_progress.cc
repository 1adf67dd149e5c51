// SPDX-License-Identifier: BSD-3-Clause
#include "batch/plan/chunk_progress.h"

namespace isopool::batch {

ChunkProgress::ChunkProgress(uint32_t items, uint32_t batch, uint32_t retries)
    : states_(items, State::kPending),
      attempts_(items, 0),
      cuts_(size_t{items} + 1, false),
      batch_(batch),
      retries_(retries) {}

void ChunkProgress::set(uint32_t item, State state) {
  if (states_[item] == State::kDone) --done_;
  states_[item] = state;
  if (state == State::kDone) ++done_;
  if (state == State::kPending && item < firstPending_) firstPending_ = item;
}

void ChunkProgress::leaveOut(uint32_t item) {
  if (item < items()) set(item, State::kLeftOut);
}

bool ChunkProgress::giveUp(uint32_t item) {
  if (item >= items() || states_[item] != State::kPending) return false;
  ++attempts_[item];
  set(item, State::kLeftOut);
  return true;
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

uint32_t ChunkProgress::endOfCall(uint32_t item) const {
  uint32_t end = item + 1;
  while (end < items() && end % batch_ != 0 && !cuts_[end] && states_[end] == State::kPending) {
    ++end;
  }
  return end;
}

std::optional<ItemRange> ChunkProgress::next(uint32_t most) {
  while (firstPending_ < items() && states_[firstPending_] != State::kPending) ++firstPending_;
  if (firstPending_ == items()) return std::nullopt;
  const uint32_t first = firstPending_;
  uint32_t end = endOfCall(first);
  // Workers count calls from the first item on: only whole calls can follow each other.
  while (first % batch_ == 0 && end % batch_ == 0 && end < items() && !cuts_[end] &&
         states_[end] == State::kPending) {
    const uint32_t next = endOfCall(end);
    if ((next % batch_ != 0 && next != items()) || next - first > most) break;
    end = next;
  }
  return ItemRange{first, end - first};
}

void ChunkProgress::succeeded(ItemRange range) {
  for (uint32_t item = range.first; item < range.first + range.count; ++item) {
    set(item, State::kDone);
  }
}

std::optional<uint32_t> ChunkProgress::failed(ItemRange range, std::optional<uint32_t> culprit) {
  if (range.count == 1) culprit = range.first;
  if (!culprit || *culprit < range.first || *culprit >= range.first + range.count) {
    cuts_[range.first] = true;
    cuts_[range.first + range.count / 2] = true;
    cuts_[range.first + range.count] = true;
    return std::nullopt;
  }
  cuts_[*culprit] = true;
  cuts_[*culprit + 1] = true;
  if (++attempts_[*culprit] <= retries_) return std::nullopt;
  set(*culprit, State::kLeftOut);
  return culprit;
}

void ChunkProgress::suspect(ItemRange range) {
  cuts_[range.first] = true;
  cuts_[range.first + range.count] = true;
}

void ChunkProgress::suspectAll() { cuts_.assign(cuts_.size(), true); }

}  // namespace isopool::batch

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace isopool::batch {

/// Items first to first + count - 1 of a chunk.
struct ItemRange {
  uint32_t first = 0;
  uint32_t count = 0;

  bool operator==(const ItemRange&) const = default;
};

/// Decides what is done next with one chunk: which items make the next call, and what a failed call
/// means for its items. Pure: it calls nothing and knows no time. Not thread-safe.
///
/// A call of several items that fails is bisected: its halves are called next, and so on. An item
/// that fails alone, or that the worker named, has failed once more; after `retries` further
/// failures it is given up.
///
///   item     | event                                      | next state
///   ---------|--------------------------------------------|-----------
///   pending  | its call succeeds                          | done
///   pending  | its call of several fails, item not named  | pending, in a call of half the size
///   pending  | it fails alone or is named, retries left   | pending, in a call of its own
///   pending  | it fails alone or is named, no retry left  | given up
///   pending  | its worker ended, for whatever reason      | pending, in a call by itself
///   done     | a new worker has not recovered its result  | pending
///   pending  | a new worker has recovered its result      | done
class ChunkProgress {
 public:
  /// A chunk of `items` items, which are called `batch` at a time. Both are at least 1.
  ChunkProgress(uint32_t items, uint32_t batch, uint32_t retries);

  /// The item has an outcome from an earlier run, or is not this chunk's to do.
  void leaveOut(uint32_t item);
  /// Gives the item up, whose call failed for a reason of the whole call. False if it has an
  /// outcome.
  bool giveUp(uint32_t item);
  /// A worker has opened the chunk and has these results. Ranges beyond the chunk are ignored.
  void opened(const std::vector<ItemRange>& recovered);

  /// The items of the next call; no value if the chunk can be finished. Never empty. If `most`
  /// allows more, the items of several whole calls in a row, none of which has failed before.
  std::optional<ItemRange> next(uint32_t most = 0);
  /// These items, of one or more calls, have results now.
  void succeeded(ItemRange range);
  /// The worker ended during this call, perhaps for another reason: the next time the call is made
  /// by itself.
  void suspect(ItemRange range);
  /// This one call failed. `culprit` is the item that the worker named, if it named one of the
  /// range. Returns the item that is given up, if there is one.
  std::optional<uint32_t> failed(ItemRange range, std::optional<uint32_t> culprit);
  /// The chunk could not be opened or finished, and no item is known to be the cause: from now on
  /// each item is called alone.
  void suspectAll();

  uint32_t done() const { return done_; }
  uint32_t items() const { return static_cast<uint32_t>(states_.size()); }
  /// How often the item has failed so far.
  uint32_t attempts(uint32_t item) const { return attempts_[item]; }

 private:
  enum class State : uint8_t { kPending, kDone, kLeftOut };
  void set(uint32_t item, State state);
  /// The end of the call that begins with this item.
  uint32_t endOfCall(uint32_t item) const;

  std::vector<State> states_;
  std::vector<uint32_t> attempts_;
  /// True for an item at which failures have cut a call in two. Other calls begin at multiples of
  /// the batch.
  std::vector<bool> cuts_;
  const uint32_t batch_;
  const uint32_t retries_;
  uint32_t done_ = 0;
  uint32_t firstPending_ = 0;  ///< no pending item precedes it
};

}  // namespace isopool::batch

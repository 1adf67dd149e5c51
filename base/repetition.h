// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>

namespace isopool::base {

/// The values of a call are written one after the other, so a part that occurs several times in a
/// structure is written as often. A small structure can have more such parts than any memory holds:
/// each of 30 pairs that contains the next one twice doubles the number. Before many values of one
/// argument or result are written, its parts are counted, each once, and such a structure is
/// refused.
struct Repetition {
  /// This many values of an argument or result are written before they are counted.
  static constexpr size_t kUncounted = size_t{1} << 16;
  /// The most values that one argument or result may have beyond those that it has without
  /// repetition. 64 bytes of text count as one.
  static constexpr uint64_t kMost = uint64_t{1} << 22;
  static constexpr size_t kTextUnit = 64;

  bool containsItself = false;
  uint64_t repeated = 0;  ///< how many values repetition adds

  /// Why the structure can't be written; empty if it can.
  std::string refusal() const {
    if (containsItself) {
      return "a value that contains itself can't cross between processes: pass its parts one by "
             "one";
    }
    if (repeated <= kMost) return {};
    return "a value whose parts occur in it again and again can't cross between processes: each "
           "part is written as often as it occurs, which would add more than 4194304 (2^22) values "
           "to those that it has. Pass each part once, or a tensor";
  }
};

/// Counts the values of one structure, in a time that grows with its parts and not with how often
/// they occur. `Parts` has, for a `Part`:
///
///   const void* identity(part)   null if the part has one reference, so that it occurs once
///   size_t units(part)           how many values it counts for, without its elements
///   void each(part, visit)       calls visit(element) for each element
template <typename Parts>
class RepetitionCount {
 public:
  template <typename Part>
  static Repetition of(const Part& root) {
    RepetitionCount count;
    const uint64_t written = count.written(root, 0);
    count.result_.repeated = written - std::min(written, count.single_);
    return count.result_;
  }

 private:
  // A structure that is deeper is refused when it is written.
  static constexpr int kDeepest = 64;
  static constexpr uint64_t kInProgress = 0;

  static uint64_t sum(uint64_t one, uint64_t other) {
    uint64_t result = 0;
    return __builtin_add_overflow(one, other, &result) ? std::numeric_limits<uint64_t>::max()
                                                       : result;
  }

  // How many values are written for the part, with all that it contains.
  template <typename Part>
  uint64_t written(const Part& part, int depth) {
    const void* const identity = Parts::identity(part);
    if (identity == nullptr) return counted(part, depth);
    const auto [known, isNew] = written_.try_emplace(identity, kInProgress);
    uint64_t& total = known->second;  // stays valid when the map grows
    if (isNew) return total = counted(part, depth);
    if (total == kInProgress) result_.containsItself = true;
    ++single_;
    return std::max<uint64_t>(total, 1);
  }

  template <typename Part>
  uint64_t counted(const Part& part, int depth) {
    uint64_t total = Parts::units(part);
    single_ += total;
    if (depth < kDeepest) {
      Parts::each(part,
                  [&](const auto& element) { total = sum(total, written(element, depth + 1)); });
    }
    return total;
  }

  std::unordered_map<const void*, uint64_t> written_;
  uint64_t single_ = 0;  // without repetition; a reference to a known part counts as one
  Repetition result_;
};

}  // namespace isopool::base

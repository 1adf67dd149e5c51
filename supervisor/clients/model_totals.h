// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ipc/control/model_calls.h"

namespace isopool::supervisor {

/// Calls by model, as the clients of a class report them, since the supervisor's start. No count
/// falls: that of a name which has lost its place goes on where it was if the name gets one again,
/// unless kMostFormer other names have lost theirs since. Pure: the caller passes the time, which
/// must not decrease. Not thread-safe.
class ModelTotals {
 public:
  /// So many models have counts of their own; the calls of all others count for kOthers together.
  /// Bounds the memory that a client takes by reporting invented names.
  static constexpr size_t kMostModels = 64;
  static constexpr const char* kOthers = "(others)";
  /// A model without a call for this long loses its place to a name that has none.
  static constexpr base::Milliseconds kIdle{15 * 60 * 1000};
  /// So many names that have lost their places keep their counts.
  static constexpr size_t kMostFormer = 1024;

  /// Throws ipc::ProtocolError if the message is invalid; then nothing was added.
  void add(const std::vector<ipc::ModelCalls>& calls, base::TimePoint now);
  /// By name, without those that have lost their places.
  std::vector<ipc::ModelCalls> all() const;

 private:
  struct Entry {
    ipc::ModelCalls calls;
    base::TimePoint lastCall;
  };
  using Entries = std::map<std::string, Entry>;

  Entry& entryOf(const std::string& name, base::TimePoint now);
  bool makePlace(base::TimePoint now);

  Entries named_;
  Entries former_;
  Entry others_;
};

}  // namespace isopool::supervisor

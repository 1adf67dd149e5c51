// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace isopool::ipc {

/// Names a version counter of a request's tensors.
struct InputVersion {
  uint64_t call = 0;     ///< the request's number on its channel
  uint32_t version = 0;  ///< the counter's index in that request, TensorHead::version

  auto operator<=>(const InputVersion&) const = default;
};

/// What an answer reports to the client about the tensors that its requests passed. The client
/// increments the version counters of its own tensors, so that its autograd sees the writes of a
/// worker as it sees those of its own process. Untrusted: the worker wrote it.
struct InputReport {
  struct Written {
    InputVersion input;
    uint32_t times = 0;  ///< by how much the counter has grown
  };
  /// Written to since the last report.
  std::vector<Written> written;
  /// Inputs of the answered request that objects behind handles keep: later requests may write to
  /// them. Indices of their counters.
  std::vector<uint32_t> kept;
  /// Inputs that were kept and are no longer used.
  std::vector<InputVersion> released;

  /// The most bytes that it adds to a payload.
  size_t mostBytes() const {
    return 16 + 20 * written.size() + 5 * kept.size() + 15 * released.size();
  }
  bool empty() const { return written.empty() && kept.empty() && released.empty(); }
  void clear() {
    written.clear();
    kept.clear();
    released.clear();
  }
};

}  // namespace isopool::ipc

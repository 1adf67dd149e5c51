// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "isopool/export.h"

namespace isopool {

/// Distributes users over n resources, for programs that choose interpreters themselves: use the
/// index with InterpreterManager::allInstances(). A manager balances its own calls without this
/// class. Thread-safe; no member waits for a resource. Usable in a forked child.
struct ISOPOOL_EXPORT LoadBalancer {
  /// Has the resources 0 to n - 1, all idle. Throws Error if n is 0.
  explicit LoadBalancer(size_t n);
  LoadBalancer(const LoadBalancer&) = delete;
  LoadBalancer& operator=(const LoadBalancer&) = delete;

  /// From now on acquire() returns only the first n resources. Throws Error if n is 0 or larger
  /// than the number of resources.
  void setResourceLimit(size_t n);
  /// Returns the resource that this thread had last if it is idle, else the next idle one, else the
  /// one with the fewest users. The resource has one more user until free() is called for it.
  int acquire();
  /// Ends one use of resource `where`, on any thread. Throws Error if the resource does not exist
  /// or has no user.
  void free(int where);

 private:
  std::vector<size_t> users_;
  size_t limit_;
};

}  // namespace isopool

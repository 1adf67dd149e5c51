// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

namespace isopool {

/// Deals out n resources, for programs that pick interpreters themselves: pass the index to
/// InterpreterManager::allInstances(). A manager balances its own calls without this. Any thread;
/// it never waits.
struct LoadBalancer {
  /// Resources 0 to n - 1, all idle. Throws Error if n is 0.
  explicit LoadBalancer(size_t n);
  LoadBalancer(const LoadBalancer&) = delete;
  LoadBalancer& operator=(const LoadBalancer&) = delete;

  /// Only the first n are dealt out from now on, until another limit is set. Throws Error if n is 0
  /// or more than there are.
  void setResourceLimit(size_t n);
  /// The resource that this thread had last if it is idle, else the next idle one, else the one
  /// with the fewest users. It has one user more until free() is called for it.
  int acquire();
  /// Throws Error if resource `where` does not exist or has no user.
  void free(int where);

 private:
  std::vector<size_t> users_;
  size_t limit_;
};

}  // namespace isopool

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/program/process_fork.h"

namespace isopool::client {

/// Python modules that the program registered as text for its workers, in the order of their
/// registration. Workers get them before the next request that may import one, also the workers
/// that replace others, see WorkerSetup::syncModules(). A source is never removed. Any thread; no
/// member waits for a worker. In a forked child every member but count() throws Error.
class ModuleSources {
 public:
  struct Source {
    std::string name;
    std::string text;
  };

  /// Adds a module. Where an earlier source of the same name is not imported yet, this one replaces
  /// it; where it is imported, the worker keeps the imported module. `text` is compiled only when a
  /// worker imports it. Throws Error if `name` can't be a module's name.
  void add(std::string name, std::string text);

  /// The number of different names.
  size_t names() const;
  /// The number of sources that were added. A worker that got as many has all of them.
  size_t count() const { return count_.load(std::memory_order_acquire); }
  /// Copies of all sources but the first `given`, which is at most count().
  std::vector<Source> after(size_t given) const;

 private:
  mutable base::Mutex mutex_;
  std::vector<Source> sources_ ISOPOOL_GUARDED_BY(mutex_);
  std::set<std::string> names_ ISOPOOL_GUARDED_BY(mutex_);
  std::atomic<size_t> count_{0};
  const uint32_t generation_ = forkGeneration();
};

/// A module that every manager registers by itself, as torch::deploy's managers did.
inline constexpr const char* kArgumentNamesModule = "GetArgumentNamesModule";
inline constexpr const char* kArgumentNamesFunction = "getArgumentNames";
ModuleSources::Source argumentNamesModule();

}  // namespace isopool::client

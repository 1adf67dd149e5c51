// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/process_fork.h"

namespace isopool::client {

/// Python modules that the program gives its workers as text, in the order of their registration.
/// Any thread. In a forked process every member but count() throws Error.
class ModuleSources {
 public:
  struct Source {
    std::string name;
    std::string text;
  };

  /// A later source of the same name replaces the earlier one where that is not imported yet.
  /// Throws Error if this can't be a module's name.
  void add(std::string name, std::string text);

  /// How many names have a source.
  size_t names() const;
  /// How many sources were added: a worker that was given as many needs nothing.
  size_t count() const { return count_.load(std::memory_order_acquire); }
  /// All but the first `given`.
  std::vector<Source> after(size_t given) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Source> sources_;
  std::set<std::string> names_;
  std::atomic<size_t> count_{0};
  const uint32_t generation_ = forkGeneration();
};

/// A module that every manager registers itself, as torch::deploy's managers did.
inline constexpr const char* kArgumentNamesModule = "GetArgumentNamesModule";
inline constexpr const char* kArgumentNamesFunction = "getArgumentNames";
ModuleSources::Source argumentNamesModule();

}  // namespace isopool::client

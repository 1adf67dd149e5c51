// SPDX-License-Identifier: BSD-3-Clause
#include "client/pool/module_sources.h"

#include "isopool/errors.h"

namespace isopool::client {

void ModuleSources::add(std::string name, std::string text) {
  if (name.empty() || name.front() == '.' || name.back() == '.' ||
      name.find("..") != std::string::npos || name.find('\0') != std::string::npos) {
    throw Error("registerModuleSource: \"" + name +
                "\" is not a module name: give a name that an import statement accepts");
  }
  checkNotForked(generation_);
  base::MutexLock lock(mutex_);
  names_.insert(name);
  sources_.push_back({std::move(name), std::move(text)});
  count_.store(sources_.size(), std::memory_order_release);
}

size_t ModuleSources::names() const {
  checkNotForked(generation_);
  base::MutexLock lock(mutex_);
  return names_.size();
}

std::vector<ModuleSources::Source> ModuleSources::after(size_t given) const {
  checkNotForked(generation_);
  base::MutexLock lock(mutex_);
  return {sources_.begin() + static_cast<ptrdiff_t>(given), sources_.end()};
}

ModuleSources::Source argumentNamesModule() {
  // None for a function without arguments: the type of an empty list can't be inferred.
  return {kArgumentNamesModule,
          "import inspect\n"
          "\n"
          "\n"
          "def getArgumentNames(function):\n"
          "    return [*inspect.signature(function).parameters] or None\n"};
}

}  // namespace isopool::client

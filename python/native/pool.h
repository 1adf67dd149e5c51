// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "base/mutex.h"
#include "isopool/isopool.h"

namespace isopool::python {

/// A manager that can be closed. The caller of a member holds the GIL, which the members release
/// while they wait. Thread-safe.
class Pool {
 public:
  explicit Pool(const PoolOptions& options)
      : manager_(std::make_shared<InterpreterManager>(options)) {}

  /// Throws Error once the pool is closed.
  std::shared_ptr<InterpreterManager> manager() const;
  /// Ends the workers. A call in flight keeps them until it has ended.
  void close();

 private:
  mutable base::Mutex mutex_;
  std::shared_ptr<InterpreterManager> manager_ ISOPOOL_GUARDED_BY(mutex_);
};

/// Adds the class Pool to the extension module.
void definePool(pybind11::module_& module);

}  // namespace isopool::python

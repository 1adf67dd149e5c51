// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// The attributes that Python's objects of threading.local have in this thread, for those that the
/// worker began with (isopool_worker.thread_locals). Values are not copied: what code changes in a
/// list, for example, all who have the list see. With the GIL.
class ThreadLocals {
 public:
  static ThreadLocals ofThisThread();
  void apply() const;

 private:
  std::vector<PyRef> attributes_;  ///< a dict for each object; null: it has none
};

}  // namespace isopool::worker

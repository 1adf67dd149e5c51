// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

namespace isopool::worker {

/// Releases the GIL while it lives, so that other Python threads run.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() { PyEval_RestoreThread(state_); }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace isopool::worker

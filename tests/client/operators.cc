// SPDX-License-Identifier: BSD-3-Clause
// A user's library of C++ operators.
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "tests/client/operators_loaded.h"

namespace {

at::Tensor twicePlus(const at::Tensor& x, double y) { return x * 2 + y; }

struct Counter : torch::CustomClassHolder {
  explicit Counter(int64_t begin) : count(begin) {}
  int64_t next() { return ++count; }
  int64_t count;
};

}  // namespace

TORCH_LIBRARY(isopool_test, library) {
  library.def("twice_plus(Tensor x, float y) -> Tensor");
  library.class_<Counter>("Counter").def(torch::init<int64_t>()).def("next", &Counter::next);
  operatorsLoaded();
}

// Only for the CPU: torch.export then needs a fake kernel for the shapes, like for real operators.
TORCH_LIBRARY_IMPL(isopool_test, CPU, library) { library.impl("twice_plus", &twicePlus); }

// SPDX-License-Identifier: BSD-3-Clause
// A user's library of C++ operators in several variants, see CMakeLists.txt.
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

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
#ifdef OPERATORS_THROW
  throw std::runtime_error("these operators do not want to exist");
#endif
#ifdef OPERATORS_CRASH
  std::abort();
#endif
#ifdef OPERATORS_START_A_THREAD
  std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
#endif
}

// Only for the CPU: torch.export then needs a fake kernel for the shapes, like for real operators.
TORCH_LIBRARY_IMPL(isopool_test, CPU, library) { library.impl("twice_plus", &twicePlus); }

// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operation_threads.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <optional>

#include "worker/process/floating_point.h"

namespace isopool::worker {

namespace {

// In each of `count` threads, this one among them. at::parallel_for() has one only in code that is
// compiled with the OpenMP of torch; this function of torch's library is.
template <typename Step>
void inEachThread(int count, Step step) {
  // Not by the dispatcher, which would call a dispatch mode of user code.
  at::TensorBase pieces = at::detail::empty_cpu({count}, at::kByte);
  at::TensorIterator::nullary_op(pieces).for_each(
      [&](char**, const int64_t*, int64_t, int64_t) { step(); }, /*grain_size=*/1);
}

int threads = 1;
/// What the threads have, unless code has changed it in them; nullopt: not known.
std::optional<FloatingPointControl> given;

}  // namespace

// Threads that torch makes later, because code has raised their number, get the modes of that
// moment: so a larger number is a reason, too.
void matchOperationThreads() {
  const int now = at::get_num_threads();
  const FloatingPointControl wanted = FloatingPointControl::ofThisThread();
  if (now > threads || (now > 1 && wanted != given)) {
    inEachThread(now, [&] { wanted.apply(); });
    given = wanted;
  }
  threads = now;
}

void forgetOperationThreads() noexcept { given.reset(); }

}  // namespace isopool::worker

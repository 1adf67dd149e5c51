// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/thread_objects.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace isopool::client {

namespace {

// More than all registrations of a thread take together.
constexpr size_t kBytes = 4096;

// glibc takes the memory of the registrations from the thread's own heap, to which the block
// returns. The pointer is volatile because compilers remove an allocation that nothing uses.
void checkThatMemoryIsThere() {
  void* volatile block = std::malloc(kBytes);
  if (block == nullptr) throw std::bad_alloc();
  std::free(block);
}

}  // namespace

void makeThreadObjects() {
  checkThatMemoryIsThere();
  (void)c10::GradMode::is_enabled();
  (void)c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE);
  (void)at::get_record_function_tls_();
}

}  // namespace isopool::client

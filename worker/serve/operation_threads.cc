// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/operation_threads.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <dlfcn.h>
#include <link.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/process/floating_point.h"
#include "worker/process/loaded_libraries.h"

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

using Pause = int (*)(int);
constexpr int kPauseHard = 2;  // omp_pause_hard

struct Libraries {
  unsigned long long loaded = 0;  // since the process began
  std::vector<Pause> pauses;
};

// omp_pause_resource_all() of each OpenMP in this process. Looks again when libraries were loaded.
const std::vector<Pause>& pauses() {
  static Libraries known;
  unsigned long long loaded = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* count) {
        *static_cast<unsigned long long*>(count) = library->dlpi_adds;
        return 1;
      },
      &loaded);
  if (loaded == known.loaded) return known.pauses;
  // libgomp, libomp, libiomp5, and others, which lack the function.
  const std::vector<std::string> paths = loadedLibraries([](std::string_view path) {
    return path.substr(path.rfind('/') + 1).find("omp") != std::string_view::npos;
  });
  known = {loaded, {}};
  for (const std::string& path : paths) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW);
    if (library == nullptr) continue;
    const auto pause = reinterpret_cast<Pause>(::dlsym(library, "omp_pause_resource_all"));
    // Not closed: it must stay as long as it is called.
    if (pause != nullptr)
      known.pauses.push_back(pause);
    else
      ::dlclose(library);
  }
  return known.pauses;
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

// An OpenMP that has made threads for code which raised their number keeps them when the number is
// one again. It ends those of this thread when it is paused, and makes others when they are needed.
void forgetOperationThreads() {
  given.reset();
  if (at::get_num_threads() > 1) return;
  for (const Pause pause : pauses()) pause(kPauseHard);
}

}  // namespace isopool::worker

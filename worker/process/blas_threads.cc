// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/blas_threads.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "worker/process/floating_point.h"

namespace isopool::worker {

namespace {

FloatingPointControl modesOfThreads;

struct ThreadCount {
  const char* get;
  const char* set;
};

// The names in NumPy's library, SciPy's, and one of the system.
constexpr std::array<ThreadCount, 4> kFunctions{{
    {"scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"},
    {"scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"},
    {"openblas_get_num_threads64_", "openblas_set_num_threads64_"},
    {"openblas_get_num_threads", "openblas_set_num_threads"},
}};

// To set the number that it has makes an OpenBLAS start its threads if it has none.
void startThreadsOf(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return;
  for (const ThreadCount& functions : kFunctions) {
    const auto get = reinterpret_cast<int (*)()>(::dlsym(library, functions.get));
    const auto set = reinterpret_cast<void (*)(int)>(::dlsym(library, functions.set));
    if (get == nullptr || set == nullptr) continue;
    if (const int count = get(); count > 1) set(count);
    break;
  }
  ::dlclose(library);
}

void startThreads() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* found) {
        if (std::strstr(library->dlpi_name, "openblas") != nullptr) {
          static_cast<std::vector<std::string>*>(found)->emplace_back(library->dlpi_name);
        }
        return 0;
      },
      &paths);
  const FloatingPointControl own = FloatingPointControl::ofThisThread();
  modesOfThreads.apply();
  for (const std::string& path : paths) startThreadsOf(path);
  own.apply();
}

}  // namespace

void remakeBlasThreadsAfterForks() {
  modesOfThreads = FloatingPointControl::ofThisThread();
  ::pthread_atfork(nullptr, &startThreads, nullptr);
}

}  // namespace isopool::worker

// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/blas_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "worker/process/floating_point.h"
#include "worker/process/loaded_libraries.h"

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
  // Also by the folder's name: a system's libblas.so.3 may be an OpenBLAS.
  const std::vector<std::string> paths = loadedLibraries(
      [](std::string_view path) { return path.find("openblas") != std::string_view::npos; });
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

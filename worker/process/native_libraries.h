// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace isopool::worker {

/// Names the libraries that each worker loads for itself.
inline constexpr const char* kWorkerLibraries = "ISOPOOL_WORKER_PRELOAD_LIBS";

/// Loads shared libraries, which register operators and custom classes (TORCH_LIBRARY), into this
/// process, their symbols visible to all. Each is a path or a name that the loader finds. Throws
/// std::runtime_error with the library and the reason of the loader or of the library's
/// initialisers.
void loadLibraries(const std::vector<std::string>& libraries);

/// Loads them in a child process that ends at once, because an initialiser may end its process or
/// start threads. Throws as loadLibraries does, also for a child that dies. For a process of one
/// thread.
void tryLibraries(const std::vector<std::string>& libraries);

}  // namespace isopool::worker

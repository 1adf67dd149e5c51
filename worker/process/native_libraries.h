// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace isopool::worker {

/// The setting with the libraries that each worker loads for itself.
inline constexpr const char* kWorkerLibraries = "ISOPOOL_WORKER_PRELOAD_LIBS";

/// Loads shared libraries, which register operators and custom classes (TORCH_LIBRARY), into this
/// process with global symbols. An item is a path or a name that the loader finds. Throws
/// std::runtime_error with the library and the loader's reason.
void loadLibraries(const std::vector<std::string>& libraries);

/// Loads them in a child process that exits immediately afterwards, because an initialiser may exit
/// its process, throw, or start threads. Throws std::runtime_error with the library and the reason,
/// also if the child dies, and SystemCallError. The process must have one thread and hold the GIL.
void tryLibraries(const std::vector<std::string>& libraries);

}  // namespace isopool::worker

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isopool::worker {

/// The paths of the libraries in this process that are wanted, in the order in which they were
/// loaded. `wanted` must not load or unload one. Thread-safe.
std::vector<std::string> loadedLibraries(bool (*wanted)(std::string_view path));

}  // namespace isopool::worker

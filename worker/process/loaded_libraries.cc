// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/loaded_libraries.h"

#include <link.h>

namespace isopool::worker {

std::vector<std::string> loadedLibraries(bool (*wanted)(std::string_view path)) {
  struct Search {
    decltype(wanted) isWanted;
    std::vector<std::string> paths;
  } search{wanted, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        Search& result = *static_cast<Search*>(data);
        if (result.isWanted(library->dlpi_name)) result.paths.emplace_back(library->dlpi_name);
        return 0;
      },
      &search);
  return search.paths;
}

}  // namespace isopool::worker

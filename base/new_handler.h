// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <new>

namespace isopool::base {

/// What operator new does, for the work of a library that takes its memory from malloc: as long as
/// `work` throws std::bad_alloc the program's new-handler is called and `work` done once more, from
/// its beginning. Ends with what the handler throws; without a handler, with the std::bad_alloc.
template <typename Work>
auto askingNewHandler(Work&& work) {
  for (;;) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      const std::new_handler handler = std::get_new_handler();
      if (handler == nullptr) throw;
      handler();
    }
  }
}

}  // namespace isopool::base

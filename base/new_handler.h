// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <new>

namespace isopool::base {

/// Does for a library that takes its memory from malloc what operator new does: if `work` throws
/// std::bad_alloc, calls the program's new-handler and runs `work` again from its beginning, until
/// it succeeds. Throws what the handler throws, or the std::bad_alloc if the program has no
/// handler. Any thread may call it.
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

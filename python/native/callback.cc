// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/callback.h"

#include <utility>

#include "python/native/unlocked.h"

namespace isopool::python {

Callback makeCallback(pybind11::function function) {
  return {new pybind11::function(std::move(function)), [](pybind11::function* last) {
            if (isEnding()) return;
            const pybind11::gil_scoped_acquire acquired;
            delete last;
          }};
}

}  // namespace isopool::python

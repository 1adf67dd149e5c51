// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/callback.h"

#include <utility>

#include "python/native/python_entry.h"

namespace isopool::python {

Callback makeCallback(pybind11::function function) {
  return {new pybind11::function(std::move(function)), [](pybind11::function* last) {
            if (const PythonEntry entry; entry) delete last;
          }};
}

}  // namespace isopool::python

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

namespace isopool::python {

/// True once the interpreter ends: a thread that then asks for the GIL never returns.
inline bool isEnding() {
#if PY_VERSION_HEX >= 0x030D0000
  const bool finalizing = Py_IsFinalizing() != 0;
#else
  const bool finalizing = _Py_IsFinalizing() != 0;
#endif
  return finalizing || Py_IsInitialized() == 0;
}

/// Runs `step`, which may wait for a worker, without the GIL.
template <typename Step>
auto unlocked(const Step& step) {
  const pybind11::gil_scoped_release released;
  return step();
}

/// Releases the GIL in the destructor, which may wait for workers, even if the garbage collector is
/// the last owner.
template <typename T, typename... Arguments>
std::shared_ptr<T> makeShared(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [](T* object) {
    const pybind11::gil_scoped_release released;
    delete object;
  });
}

}  // namespace isopool::python

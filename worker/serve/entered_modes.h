// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace isopool::worker {

/// The modes that Python code has entered in this thread and not left (TorchFunctionMode, also by
/// torch.set_default_device, and TorchDispatchMode). As in the program itself they stay for its
/// later calls; in a worker of several programs each has its own. With the GIL.
class EnteredModes {
 public:
  /// None.
  EnteredModes() = default;

  static EnteredModes ofThisThread() {
    EnteredModes modes;
    modes.function_ = at::impl::PythonTorchFunctionTLS::get_state();
    modes.dispatch_ = c10::impl::TorchDispatchModeTLS::get_state();
    return modes;
  }
  void apply() const {
    at::impl::PythonTorchFunctionTLS::set_state(function_);
    c10::impl::TorchDispatchModeTLS::set_state(dispatch_);
  }

 private:
  at::impl::PythonTorchFunctionTLS function_;
  c10::impl::TorchDispatchModeTLS dispatch_;
};

}  // namespace isopool::worker

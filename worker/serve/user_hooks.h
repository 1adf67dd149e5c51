// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "worker/python/py_ref.h"

namespace isopool::worker {

/// Which clients' code has installed hooks that run in the code of all clients of the worker: the
/// hooks of torch.nn for all modules (torch.nn.modules.module.register_module_*_hook), and
/// sys.addaudithook(), which Python can't remove. The call loop's thread, with the GIL.
class UserHooks {
 public:
  /// To be made before any user code runs.
  UserHooks();

  /// To be called when code of `client` has run. Takes some nanoseconds.
  void ranCodeOf(uint64_t client) noexcept;
  /// To be called when a client has left.
  void left(uint64_t client) noexcept;
  /// True if hooks are there that a client which has left had installed.
  bool leftBehind() const noexcept;

 private:
  size_t moduleHooks() const noexcept;

  std::vector<PyRef> dicts_;  ///< of torch.nn, by the number of the hook
  size_t atFirst_ = 0;        ///< hooks that were there before any user code
  size_t seen_ = 0;
  bool audited_;
  std::set<uint64_t> ofModules_;  ///< clients that have changed the number of these hooks
  uint64_t ofAudits_ = 0;         ///< the client that was the first to add an audit hook
  bool modulesLeft_ = false;
  bool auditsLeft_ = false;
};

}  // namespace isopool::worker

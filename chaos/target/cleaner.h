// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"

namespace chaos {

/// While it lives, everything that this process starts will end with it, however it ends: a process
/// of its own waits for that and kills them. To be made before any thread, once.
class Cleaner {
 public:
  Cleaner();

 private:
  isopool::base::Fd lifeline_;
};

}  // namespace chaos

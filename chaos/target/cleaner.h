// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"

namespace chaos {

/// While this object lives, every process that this process starts ends with it, even if it is
/// killed: a separate process waits for its end and kills them. Make it once, before any thread.
class Cleaner {
 public:
  Cleaner();

 private:
  isopool::base::Fd lifeline_;
};

}  // namespace chaos

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"

namespace isopool::base {

/// The supervisor's end of a lifeline: the only write end of a pipe. When it closes, by cut() or
/// because the supervisor died in any way, the kernel kills the process group of the child that
/// holds and has armed the read end, even if the child is stopped.
///
/// One pipe per child: the setting that makes the kernel send the signal belongs to the open read
/// end, so two children can't share one.
class Lifeline {
 public:
  Lifeline() = default;
  /// Makes the pipe and stores its read end, which only the child may keep. Both ends are
  /// close-on-exec. Throws SystemCallError.
  static Lifeline make(Fd& readEnd);

  /// Closes the write end: the kernel kills the child's process group.
  void cut() { writeEnd_.close(); }

 private:
  Fd writeEnd_;
};

/// Makes the kernel kill the calling process's group (SIGKILL) when the last write end of the pipe
/// is closed. Returns false if it is closed already: then the signal may not come. The descriptor
/// must stay open. Throws SystemCallError.
[[nodiscard]] bool armLifeline(int readEnd);

}  // namespace isopool::base

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/fd.h"

namespace isopool::base {

/// The supervisor's end of a lifeline: a pipe of which it holds the only write end. When that end
/// is gone, by close() or because the supervisor died however it did, the kernel kills the process
/// group of the child that holds and has armed the read end, even if it is stopped.
///
/// One pipe per child: what the kernel does at the pipe's end belongs to the open read end, so two
/// children can't share one.
class Lifeline {
 public:
  Lifeline() = default;
  /// The read end is for the child alone.
  static Lifeline make(Fd& readEnd);

  void cut() { writeEnd_.close(); }

 private:
  Fd writeEnd_;
};

/// Makes the kernel kill the calling process's group (SIGKILL) when nobody holds the write end of
/// the pipe any more. Returns false if that is so already. The descriptor must stay open.
[[nodiscard]] bool armLifeline(int readEnd);

}  // namespace isopool::base

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

/// The text that ps shows for this process in place of its arguments. The name of the process
/// (comm) stays "isopool-worker" in all of them.
namespace isopool::worker {

/// Notes where the kernel has the arguments of this process. From now on they may change: a pointer
/// to one must not be used any more.
void keepProcessTitle();

/// Sets the title to "isopool-worker: ROLE", cut to the length of the arguments. Does nothing
/// without keepProcessTitle(). Only the main thread.
void setProcessTitle(std::string_view role);

}  // namespace isopool::worker

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::client {

/// Makes torch's thread_local objects in the calling thread, if it has none yet. Throws
/// std::bad_alloc if there is no memory for them and for one more thread_local object, which the
/// caller may make next. Call it in a new thread before anything else that needs them: glibc ends
/// the program if it has no memory to register the destructor of a thread_local object
/// (__cxa_thread_atexit_impl), and no caller can handle that.
void makeThreadObjects();

}  // namespace isopool::client

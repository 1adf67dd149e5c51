// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/channel/futex.h"
#include "ipc/channel/layout.h"

/// The liveness word shows a client within a fraction of a millisecond that a worker can't publish
/// anything more, whatever the worker's size. (A pidfd becomes readable only after the kernel has
/// torn down the address space, about 64 ms per GB.)
///
/// It is a robust mutex in the worker's control segment. The thread that publishes locks it once
/// and never unlocks it: so the race of robust unlocking can't happen. It guards no data. The
/// holder sets FUTEX_WAITERS itself, because otherwise the kernel wakes no waiter when the owner
/// dies. The kernel wakes one waiter, so one thread per channel sleeps on the word.
namespace isopool::ipc {

/// Initialises the word and locks it for the calling thread's life: the end of that thread, not
/// only of its process, is the death. `control` must stay mapped until leaveLivenessWord() has
/// returned true. Throws SystemCallError.
void holdLivenessWord(WorkerControl& control);

/// Releases the word without other processes' noticing, so that the memory may be unmapped: the
/// robust mutexes of a thread form a list through their memory, which the kernel and the next
/// holdLivenessWord() follow. False if the calling thread is not the holder or memory is short:
/// then `control` must stay mapped.
bool leaveLivenessWord(WorkerControl& control) noexcept;

/// True once the holder is dead. Any thread; one load. A hostile worker may write any value: note a
/// death that was seen.
bool livenessWordOwnerDied(const WorkerControl& control) noexcept;

/// For futexWait(): sleeps until the holder dies. Create the watch before the last check of the
/// word by livenessWordOwnerDied().
FutexWatch watchLivenessWord(const WorkerControl& control) noexcept;

/// Tests the kernel: kills a forked child that holds a liveness word. True if the calling process
/// was woken within 90 ms. False means that on this system only pidfds show deaths. Blocks for
/// 200 ms at most, mostly for a few. Only for a process with one thread, at its start. Throws
/// SystemCallError.
bool livenessWordWorksHere();

}  // namespace isopool::ipc

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ipc/channel/futex.h"
#include "ipc/channel/layout.h"

/// The liveness word: how a client learns within a fraction of a millisecond that a worker can
/// publish nothing more, whatever the worker's size (a pidfd tells it only after the kernel has
/// torn down the address space, about 64 ms per GB).
///
/// A robust mutex in the worker's control segment is locked once, by the thread that publishes, and
/// never unlocked: so the race of robust unlocking can't happen, and nothing is ever guarded by it.
/// The holder sets FUTEX_WAITERS itself, because the kernel wakes nobody at an owner's death
/// otherwise; it wakes one waiter, so one thread per channel sleeps on it.
namespace isopool::ipc {

/// Initialises and locks the word for the calling thread's life. Throws SystemCallError.
void holdLivenessWord(WorkerControl& control);

/// Ends the hold unseen by others, so that the memory may be unmapped: a thread's robust mutexes
/// are a list through their memory, which the kernel and the next holdLivenessWord() follow. False
/// if this thread is not the holder, or there is no memory: then `control` must stay mapped.
bool leaveLivenessWord(WorkerControl& control) noexcept;

/// True once the holder is dead.
bool livenessWordOwnerDied(const WorkerControl& control) noexcept;

/// For futexWait: sleeps until the holder dies. To be built before looking at the word.
FutexWatch watchLivenessWord(const WorkerControl& control) noexcept;

/// Kills a forked child that holds a liveness word and reports whether the kernel woke us within
/// 100 ms. False means that deaths on this system are seen through pidfds alone. For a process with
/// one thread, at its start.
bool livenessWordWorksHere();

}  // namespace isopool::ipc

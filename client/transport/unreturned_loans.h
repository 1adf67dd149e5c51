// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

namespace isopool::client {

class WorkerLink;

/// For a link that has ended although its worker lives on: a shared supervisor's worker that still
/// runs a call may write to what was lent to it. The link is kept, and so is what was lent, until
/// the worker has returned everything or is gone. Any thread; does not wait. A forked child keeps
/// nothing of its parent.
void keepUntilReturned(std::shared_ptr<WorkerLink> link);

/// Releases the kept links whose workers have returned everything or are gone. Call it now and
/// then, for example when a worker is introduced.
void releaseReturned();

}  // namespace isopool::client

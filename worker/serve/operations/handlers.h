// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::worker {

class RunningCall;
struct ClientLink;

/// What each operation of the protocol does (ipc/channel/operation.h): one file per operation,
/// named after it. A handler publishes the answer as its last step. It throws PythonRaised,
/// Refusal, ipc::ValueError, c10::Error or other standard exceptions, all of which
/// CallRunner::run() answers. The call loop's thread, with the GIL, after WorkerEnd::start().
namespace operations {

using Handler = void(RunningCall& call, ClientLink& channel);

// Preparations (ipc::isPreparation()), and what undoes one.
Handler ping;
Handler assumeSlot;
Handler findModules;
Handler extendPath;
Handler registerModule;
Handler defineObject;
Handler defineMovable;
Handler forgetObject;

// Replicated objects.
Handler callObject;
Handler callMethod;
Handler hasAttribute;  // also of handles
Handler objectHandle;

// Handles.
Handler packageHandle;
Handler global;
Handler fromValue;
Handler attribute;
Handler callHandle;
Handler next;
Handler toValue;
Handler releaseHandles;

// An object's move to other workers, see worker/python/moving.py; the other workers define it.
Handler pickle;
Handler fillMovable;

/// For a number that is no operation: refuses the call.
Handler refuseUnknown;

}  // namespace operations
}  // namespace isopool::worker

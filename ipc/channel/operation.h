// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// What a client can ask of a worker over a channel. Each payload is one msgpack array as listed,
/// followed by the table of storages (ipc/tensor/value_codec.h); `value` is an encoded IValue,
/// `argument` a value or a handle. Unless kNoReply is set each is answered by one completion.
namespace isopool::ipc {

enum class Operation : uint32_t {
  kPing = 1,            ///< [] -> nil
  kAssumeSlot,          ///< [slot] -> nil: which interpreter of its pool this worker is now
  kFindModules,         ///< [name...] -> value: list of the names that cannot be imported
  kDefineObject,        ///< [object, package, module, file] -> nil; unpickled now
  kForgetObject,        ///< [object] -> nil
  kCallObject,          ///< [object, [argument...], {name: argument}] -> value
  kObjectHasAttribute,  ///< [object, name] -> value: bool
  kObjectHandle,        ///< [object, newHandle] -> nil
  kPackageHandle,       ///< [package, newHandle] -> nil: the package's importer
  kGlobal,              ///< [module, name, newHandle] -> nil
  kFromValue,           ///< [value, newHandle] -> nil
  kAttribute,           ///< [handle, name, newHandle] -> nil
  kHasAttribute,        ///< [handle, name] -> value: bool
  kCallHandle,          ///< [handle, newHandle, [argument...], {name: argument}] -> nil
  kToValue,             ///< [handle] -> value
  kReleaseHandles,      ///< [handle...] -> nil
  kExtendPath,          ///< [folder...] -> nil: appended to sys.path unless already there
  /// [name, source] -> nil: a module for later imports
  kRegisterModule = 18,
  /// [handle, newHandle] -> value: (bytes of memory that the object needs to move, offset and
  /// length of its pickle there, numbers of the packages that it refers to). The new handle is the
  /// move.
  kPickle = 19,
  kFillMovable = 20,  ///< [move, package] -> nil: fills that memory
  /// [object, package, pickleOffset, pickleBytes, [package...]] -> nil: unpickled from that memory
  kDefineMovable = 21,
  kNext = 22,         ///< [handle, NextAction] -> [bool, value]: an iterator's next item, if any
  kDefineModel = 23,  ///< [object, package, ModelKind, operators] -> nil; loaded now
};

/// What kNext does. The handle's object becomes its own iterator at the first kAdvance.
enum class NextAction : uint32_t {
  kAdvance = 1,  ///< false at the end, and the handle is gone
  kClose,        ///< its close() is called if it has one, and the handle is gone
};

/// What the package of a kDefineModel is.
enum class ModelKind : uint32_t {
  kTorchScript = 1,  ///< an archive of torch.jit.save
  kExported,         ///< an archive of torch.export.save
  kCompiled,  ///< a shared library of AOTInductor; `operators` is its description of those that it
              ///< calls through torch's dispatcher, JSON, empty if there are none
};

enum SubmissionFlag : uint32_t {
  kNoReply = 1u << 0,           ///< nobody waits: no completion is published
  kGradEnabled = 1u << 1,       ///< the caller's grad mode
  kInferenceMode = 1u << 2,     ///< the caller's inference mode
  kPermissive = 1u << 3,        ///< the answer's value is converted permissively
  kAutocast = 1u << 4,          ///< the caller's autocast on the CPU
  kAutocastHalf = 1u << 5,      ///< to float16; else to bfloat16
  kAutocastUncached = 1u << 8,  ///< without the cache of weights
};

enum class CompletionStatus : uint32_t {
  kValue = 1,    ///< [value, [[CopyReason, bytes]...]]
  kPythonError,  ///< [type, message, traceback, formatted]
  kRefused,      ///< [RefusalKind, text]: isopool itself could not do it
  kWithdrawn,    ///< []: it was recalled before it started and did not run
};

enum class RefusalKind : uint32_t {
  kBadRequest = 1,    ///< malformed, or names what does not exist
  kUnsupportedValue,  ///< a kind of value that can't cross
  kArenaFull,         ///< no room for the result; the text names the knob
  kPythonExit,        ///< user code raised SystemExit; the text has the code
  kObjectUnloaded,    ///< the object was unloaded from this worker since the client defined it
  kLimitMet,          ///< a limit of this client in a shared supervisor; the text names it
};

}  // namespace isopool::ipc

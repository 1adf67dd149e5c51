// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// The requests of a client to a worker over a channel. Each payload is one msgpack array as
/// listed, followed by the table of storages (ipc/tensor/value_codec.h); `value` is an encoded
/// IValue, `argument` a value or a handle. The worker answers each request with one completion,
/// unless kNoReply is set.
namespace isopool::ipc {

/// The numbers are part of the protocol (kLayoutVersion). A new operation gets the next number and
/// leaves kLayoutVersion as it is: an older worker refuses the number (kBadRequest).
/// "-> nil": the answer is kValue with None.
/// The client chooses the numbers of objects and of handles; a handle's number is new on its
/// channel.
enum class Operation : uint32_t {
  kPing = 1,            ///< [] -> nil
  kAssumeSlot,          ///< [slot] -> nil: the number of the worker's interpreter in its pool
  kFindModules,         ///< [name...] -> value: list of the names that cannot be imported
  kDefineObject,        ///< [object, package, format, options, name] -> nil; loads it, see below
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
  kExtendPath,          ///< [folder...] -> nil: appended to sys.path unless it has them
  /// [name, source] -> nil: a module for later imports
  kRegisterModule = 18,
  /// [handle, newHandle] -> value: (bytes of memory that the object needs to move, offset and
  /// length of its pickle in that memory, numbers of the packages that it refers to). The new
  /// handle stands for the move.
  kPickle = 19,
  kFillMovable = 20,  ///< [move, package] -> nil: fills that memory
  /// [object, package, pickleOffset, pickleBytes, [package...], name] -> nil: unpickled from that
  /// memory
  kDefineMovable = 21,
  kNext = 22,  ///< [handle, NextAction] -> [bool, value]: an iterator's next item, if any
  /// [object, name, [argument...], {name: argument}] -> value: calls the attribute `name`
  kCallMethod = 23,
};
inline constexpr auto kLastOperation = Operation::kCallMethod;

/// What kNext does. The first kAdvance replaces the handle's object by its iterator.
enum class NextAction : uint32_t {
  kAdvance = 1,  ///< gives the next item; at the end gives false and releases the handle
  kClose,        ///< calls the iterator's close(), if it has one, and releases the handle
};

/// For kDefineObject: `format` names the backend that loads the object from the package's bytes
/// (client/models/ and worker/backends/ define the names), `options` is a text that only the two
/// sides of that format interpret. A worker refuses longer texts. `name`, here and for
/// kDefineMovable, is ReplicatedObj::name(), for reports; since protocol version 4.
inline constexpr size_t kMostFormatNameBytes = 64;
inline constexpr size_t kMostModelOptionsBytes = size_t{64} << 20;

enum SubmissionFlag : uint32_t {
  kNoReply = 1u << 0,           ///< no thread waits: the worker publishes no completion
  kGradEnabled = 1u << 1,       ///< the caller's grad mode
  kInferenceMode = 1u << 2,     ///< the caller's inference mode
  kPermissive = 1u << 3,        ///< the answer's value is converted permissively
  kAutocast = 1u << 4,          ///< the caller's autocast on the CPU
  kAutocastHalf = 1u << 5,      ///< autocast to float16; otherwise to bfloat16
  kAutocastUncached = 1u << 8,  ///< autocast without its cache of weights
  /// For kDefineObject: the object's tensors are in a mapping of the file of its own, so what its
  /// calls write there is not seen by the worker's other objects. Since protocol version 4.
  kOwnMemory = 1u << 9,
  kPickledError = 1u << 10,  ///< a kPythonError brings the exception's pickle; older workers don't
  kFlushToZero = 1u << 11,   ///< the caller's processor makes denormal results 0
  kDenormalsAreZero = 1u << 12,  ///< the caller's processor takes denormal operands for 0
};

enum class CompletionStatus : uint32_t {
  kValue = 1,    ///< [value, [[CopyReason, bytes]...]]
  kPythonError,  ///< [type, message, traceback, formatted], and its pickle for kPickledError
  kRefused,      ///< [RefusalKind, text]: isopool itself could not do it
  kWithdrawn,    ///< []: the client recalled the call before it started, so it did not run
};

/// Added to the status in a CompletionSlot if the payload has a report about the tensors that the
/// client's requests passed (ipc/tensor/input_report.h). If the payload has none, the report was
/// too long: every input of the request may have been written to, and may be kept.
inline constexpr uint32_t kInputReportFlag = 1u << 31;
constexpr CompletionStatus withInputReport(CompletionStatus status) {
  return static_cast<CompletionStatus>(static_cast<uint32_t>(status) | kInputReportFlag);
}

enum class RefusalKind : uint32_t {
  kBadRequest = 1,    ///< malformed, or names an object that does not exist
  kUnsupportedValue,  ///< a kind of value that can't cross between processes
  kArenaFull,         ///< no room for the result; the text names the setting
  kPythonExit,        ///< user code raised SystemExit; the text has the code
  kObjectUnloaded,    ///< the object was unloaded from this worker since the client defined it
  kLimitMet,          ///< a limit of this client in a shared supervisor; the text names it
};

}  // namespace isopool::ipc

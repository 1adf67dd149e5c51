// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/channel/worker_end.h"
#include "ipc/tensor/value_codec.h"
#include "worker/memory/control_plane.h"
#include "worker/memory/copy_counts.h"
#include "worker/sandbox/sandbox.h"
#include "worker/serve/call_inputs.h"
#include "worker/serve/client_link.h"
#include "worker/serve/result_export.h"

namespace isopool::worker {

/// Takes one call from a channel, runs its operation in Python, and publishes the answer.
/// One object serves all channels in turn; its buffers are reused. The call loop's thread,
/// with the GIL.
///
/// Errors become answers: a Python exception (kPythonError), a refusal by isopool with its reason
/// (kRefused). If the worker dies during a call, the client sees the marked liveness word and the
/// call is lost.
class CallRunner {
 public:
  /// `copies` counts for the life of the worker. All arguments must outlive this object.
  CallRunner(ControlPlane& control, CopyCounts& copies, Sandbox& sandbox);

  enum class Served {
    kNothing,       ///< no request, or the channel is poisoned and was marked detached
    kNotification,  ///< a request without an answer, which runs no user code
    kCall,
  };
  /// Serves the oldest request of the channel and reports what the sandbox forbade.
  Served serveOne(ClientLink& channel);

 private:
  class Arguments;

  /// Takes the request, resolves its storages, runs it, and turns exceptions into answers.
  void run(ClientLink& channel);
  /// The request's payload: in the slot, or a private copy of a block of the client. Throws Refusal
  /// if the block is not mapped or out of bounds.
  std::span<const std::byte> payload(ClientLink& channel);
  /// Runs the operation, which publishes the answer as its last step.
  void perform(ClientLink& channel);

  // Operations, see ipc/channel/operation.h. They throw PythonRaised, Refusal, ipc::ValueError,
  // c10::Error or other standard exceptions, all of which run() answers.

  /// Sets torch.version.interp to the client's slot, if Python code sees another one.
  void assumeSlotOf(const ClientLink& channel);
  void findModules(ClientLink& channel);
  void extendPath();
  void registerModule();
  void defineObject(ClientLink& channel);
  void callObject(ClientLink& channel);
  void packageHandle(ClientLink& channel);
  void global(ClientLink& channel);
  void attribute(ClientLink& channel);
  void callHandle(ClientLink& channel);
  void pickle(ClientLink& channel);
  void fillMovable(ClientLink& channel);
  void defineMovable(ClientLink& channel);
  void next(ClientLink& channel);

  // Elements of the request's payload, by index. They throw Refusal if an element is invalid.

  /// The replicated object with the number at `index`; borrowed.
  PyObject* object(const ClientLink& channel, size_t index) const;
  /// The object behind the handle at `index`; borrowed.
  PyObject* handle(const ClientLink& channel, size_t index) const;
  /// The package with the number at `index`; waits up to 5 s for the supervisor to send it.
  Package& package(ClientLink& channel, size_t index);
  Package& packageOf(ClientLink& channel, base::PackageId id);
  /// A value as a new Python object, or the object behind a handle.
  PyRef argument(const ClientLink& channel, const msgpack::object& object) const;
  PyRef text(size_t index) const;
  /// The same; refuses the request if the text is longer.
  PyRef boundedText(size_t index, size_t mostBytes) const;
  /// Calls `callable` with the positional arguments at `argumentsIndex` and the named ones behind
  /// them, in the caller's modes. Throws PythonRaised.
  PyRef call(ClientLink& channel, PyObject* callable, size_t argumentsIndex);
  base::HandleId newHandle(size_t index) const { return base::HandleId(reader_->integer(index)); }

  // Answers. Each is the last step of its call.
  void answerNothing(ClientLink& channel);
  void answerTruth(ClientLink& channel, bool truth);
  void answerValue(ClientLink& channel, const at::IValue& value);
  at::IValue valueOf(PyObject* object) const;
  void answerResult(ClientLink& channel, PyRef result);
  void answerPythonError(ClientLink& channel);
  void answerShortage(ClientLink& channel, const char* what);
  void refuse(ClientLink& channel, ipc::RefusalKind kind, std::string_view reason);
  /// Exports the storages of the value in writer_, adds the counts of copied bytes, and publishes.
  void finishValue(ClientLink& channel);
  /// Publishes the answer once; later calls have no effect. With kNoReply there is no answer, and
  /// the leases are cancelled. Throws Refusal if a long answer finds no room in the output arena.
  void publish(ClientLink& channel, ipc::CompletionStatus status, std::span<const std::byte> bytes);

  /// Drops the call's own references to its storages.
  void dropInputs();
  /// Throws Refusal if the client holds as many results as the operator allows it.
  void requireLeases(const ClientLink& channel) const;
  /// Makes private what the model keeps of the call. After dropInputs().
  void settleKept(ClientLink& channel);
  /// Returns ready(). While it is false, waits up to 5 s for messages of the supervisor, which
  /// may change it.
  bool awaitSupervisor(const std::function<bool()>& ready);

  ControlPlane& control_;
  CopyCounts& totalCopies_;  // of the worker's life
  Sandbox& sandbox_;
  ipc::PageHistory history_;

  // The running call.
  ipc::ReceivedCall received_;
  std::optional<uint64_t> slot_;  // the slot that Python code sees now
  bool answered_ = false;
  std::vector<std::byte> blob_;  // the payload, if it was too long for the slot
  std::optional<ipc::PayloadReader> reader_;
  CallInputs inputs_;
  CopyCounts copies_;             // of this call
  std::vector<PyObject*> stack_;  // the arguments of the Python call
  ipc::PayloadWriter writer_;
  ResultExport export_;
};

}  // namespace isopool::worker

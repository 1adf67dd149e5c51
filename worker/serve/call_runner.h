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

  void run(ClientLink& channel);
  std::span<const std::byte> payload(ClientLink& channel);
  void perform(ClientLink& channel);

  // Operations.
  void assumeSlotOf(const ClientLink& channel);
  void findModules(ClientLink& channel);
  void extendPath();
  void registerModule();
  void defineObject(ClientLink& channel);
  void defineModel(ClientLink& channel);
  void callObject(ClientLink& channel);
  void packageHandle(ClientLink& channel);
  void global(ClientLink& channel);
  void attribute(ClientLink& channel);
  void callHandle(ClientLink& channel);
  void pickle(ClientLink& channel);
  void fillMovable(ClientLink& channel);
  void defineMovable(ClientLink& channel);
  void next(ClientLink& channel);

  PyObject* object(const ClientLink& channel, size_t index) const;
  PyObject* handle(const ClientLink& channel, size_t index) const;
  Package& package(ClientLink& channel, size_t index);
  Package& packageOf(ClientLink& channel, base::PackageId id);
  PyRef argument(const ClientLink& channel, const msgpack::object& object) const;
  PyRef text(size_t index) const;
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
  void finishValue(ClientLink& channel);
  void publish(ClientLink& channel, ipc::CompletionStatus status, std::span<const std::byte> bytes);

  void dropInputs();
  void requireLeases(const ClientLink& channel) const;
  void settleKept(ClientLink& channel);
  /// Returns ready(). While it is false, waits up to 5 s for messages of the supervisor, which
  /// may change it.
  bool awaitSupervisor(const std::function<bool()>& ready);

  ControlPlane& control_;
  CopyCounts& totalCopies_;
  Sandbox& sandbox_;
  ipc::PageHistory history_;

  ipc::ReceivedCall received_;
  std::optional<uint64_t> slot_;  // the slot that Python code sees now
  bool answered_ = false;
  std::vector<std::byte> blob_;
  std::optional<ipc::PayloadReader> reader_;
  CallInputs inputs_;
  CopyCounts copies_;
  std::vector<PyObject*> stack_;
  ipc::PayloadWriter writer_;
  ResultExport export_;
};

}  // namespace isopool::worker

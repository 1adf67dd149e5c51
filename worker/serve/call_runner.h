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
#include "worker/serve/channel.h"
#include "worker/serve/result_export.h"

namespace isopool::worker {

/// Takes one call from a channel, does what it asks in Python, and answers: the whole life of a
/// call in this worker. One object serves all channels in turn; its buffers are reused. The call
/// loop's thread, with the GIL.
class CallRunner {
 public:
  /// `copies` counts for the life of the worker.
  CallRunner(ControlPlane& control, CopyCounts& copies, Sandbox& sandbox);

  enum class Served {
    kNothing,       ///< there was none, or the channel is given up
    kNotification,  ///< a request that nobody waits for and that runs no code of the user
    kCall,
  };
  /// Serves the oldest request.
  Served serveOne(Channel& channel);

 private:
  class Arguments;

  void run(Channel& channel);
  std::span<const std::byte> payload(Channel& channel);
  void perform(Channel& channel);

  // Operations.
  void assumeSlotOf(const Channel& channel);
  void findModules(Channel& channel);
  void extendPath();
  void registerModule();
  void defineObject(Channel& channel);
  void defineModel(Channel& channel);
  void callObject(Channel& channel);
  void packageHandle(Channel& channel);
  void global(Channel& channel);
  void attribute(Channel& channel);
  void callHandle(Channel& channel);
  void pickle(Channel& channel);
  void fillMovable(Channel& channel);
  void defineMovable(Channel& channel);
  void next(Channel& channel);

  PyObject* object(const Channel& channel, size_t index) const;
  PyObject* handle(const Channel& channel, size_t index) const;
  Package& package(Channel& channel, size_t index);
  Package& packageOf(Channel& channel, base::PackageId id);
  PyRef argument(const Channel& channel, const msgpack::object& object) const;
  PyRef text(size_t index) const;
  PyRef call(Channel& channel, PyObject* callable, size_t argumentsIndex);
  base::HandleId newHandle(size_t index) const { return base::HandleId(reader_->integer(index)); }

  // Answers. Each is the last thing of its call.
  void answerNothing(Channel& channel);
  void answerTruth(Channel& channel, bool truth);
  void answerValue(Channel& channel, const at::IValue& value);
  at::IValue valueOf(PyObject* object) const;
  void answerResult(Channel& channel, PyRef result);
  void answerPythonError(Channel& channel);
  void answerShortage(Channel& channel, const char* what);
  void refuse(Channel& channel, ipc::RefusalKind kind, std::string_view reason);
  void finishValue(Channel& channel);
  void publish(Channel& channel, ipc::CompletionStatus status, std::span<const std::byte> bytes);

  void dropInputs();
  void requireLeases(const Channel& channel) const;
  void settleKept(Channel& channel);
  /// True when `ready`, which what the supervisor has yet to send may change; waits a while for it.
  bool awaitSupervisor(const std::function<bool()>& ready);

  ControlPlane& control_;
  CopyCounts& totalCopies_;
  Sandbox& sandbox_;
  ipc::PageHistory history_;

  ipc::ReceivedCall received_;
  std::optional<uint64_t> slot_;  // that Python knows of now
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

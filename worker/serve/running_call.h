// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ipc/channel/futex.h"
#include "ipc/channel/worker_end.h"
#include "ipc/tensor/value_codec.h"
#include "worker/memory/control_plane.h"
#include "worker/memory/copy_counts.h"
#include "worker/sandbox/sandbox.h"
#include "worker/serve/call_inputs.h"
#include "worker/serve/client_link.h"
#include "worker/serve/result_export.h"
#include "worker/serve/shown_models.h"

namespace isopool::worker {

struct OperationEntry;

/// The call that the worker runs now, as its operation sees it: the elements of the request, and
/// the answers. CallRunner takes it from a channel and hands it to the operation. Reused from call
/// to call. The call loop's thread, with the GIL.
///
/// `channel` is always the link of the client that made the call. If the client dies, an answer
/// goes into memory that no process reads.
class RunningCall {
 public:
  /// All arguments must outlive this object.
  RunningCall(ControlPlane& control, Sandbox& sandbox, ShownModels& models);
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  // Steps of CallRunner before the operation, in this order.

  /// Copies the oldest call of the channel without taking it, see WorkerEnd::peek().
  ipc::Received peek(ipc::WorkerEnd& end) noexcept { return end.peek(received_); }
  /// The call has no answer and no copies yet. `operation` is that of received().
  void begin(const OperationEntry& operation) {
    operation_ = &operation;
    answered_ = false;
    runs_ = false;
    versions_.clear();
    report_.clear();
    sharesKept_ = true;
    began_ = ipc::monotonicNow();
    copies_.clear();
  }
  /// `payload` must stay valid until dropInputs(). Throws ipc::ValueError.
  const ipc::PayloadReader& read(std::span<const std::byte> payload) {
    reader_.emplace(payload);
    reader_->noteVersions(versions_);
    return *reader_;
  }
  /// See WorkerEnd::start(). The answer to a call that has not started counts as no completed call.
  ipc::Start start(ipc::WorkerEnd& end) noexcept {
    const ipc::Start start = end.start(received_.sequence);
    runs_ = start == ipc::Start::kRun;
    return start;
  }
  /// Decides about the client's last call of a handle, now that its next request is known. A call
  /// whose result is pickled was the loading of a model by value, which only the next call of the
  /// model tries. Any other one has shown that the worker can serve calls.
  void countEarlier(ClientLink& channel) const;
  /// See CallInputs::resolve().
  void resolveInputs(ClientLink& channel, UnclaimedLeases& loans) {
    inputs_.resolve(channel, *reader_, loans);
  }

  const ipc::ReceivedCall& received() const { return received_; }
  const OperationEntry& operation() const { return *operation_; }
  ControlPlane& control() const { return control_; }
  Sandbox& sandbox() const { return sandbox_; }
  /// The bytes that this call has copied so far.
  const CopyCounts& copies() const { return copies_; }
  /// The slot that Python code sees now, in torch.version.interp. Stays from call to call.
  std::optional<uint64_t>& shownSlot() { return shownSlot_; }

  // Elements of the request's payload, by index. They throw Refusal if an element is invalid.

  /// Between read() and dropInputs().
  const ipc::PayloadReader& reader() const { return *reader_; }
  /// The replicated object with the number at `index`; borrowed. The status page shows its model as
  /// the one that runs from now on.
  PyObject* object(const ClientLink& channel, size_t index) const;
  /// The object behind the handle at `index`; borrowed.
  PyObject* handle(const ClientLink& channel, size_t index) const;
  static PyObject* handleOf(const ClientLink& channel, base::HandleId id);
  /// The package with the number at `index`; waits up to 5 s for the supervisor to send it.
  Package& package(ClientLink& channel, size_t index);
  Package& packageOf(ClientLink& channel, base::PackageId id);
  /// A value as a new Python object, or the object behind a handle.
  PyRef argument(const ClientLink& channel, const msgpack::object& object) const;
  PyRef text(size_t index) const;
  /// The same; refuses the request if the text is longer.
  PyRef boundedText(size_t index, size_t mostBytes) const;
  /// The name at `index` of the object that this call defines, which the status page shows from now
  /// on. A client of the protocol before version 4 sends none.
  ShownModels::Name modelName(size_t index) const;
  /// The name of the model to which the object of that handle belongs; empty if there is none.
  std::string_view modelOf(const ClientLink& channel, size_t index) const;
  base::HandleId newHandle(size_t index) const { return base::HandleId(reader_->integer(index)); }

  /// An attribute of a Python object, in the caller's modes. Throws PythonRaised.
  PyRef attributeOf(ClientLink& channel, PyObject* owner, PyObject* name) const;
  /// Calls `callable` with the positional arguments at `argumentsIndex` and the named ones behind
  /// them, in the caller's modes. Throws PythonRaised.
  PyRef callPython(ClientLink& channel, PyObject* callable, size_t argumentsIndex);
  /// Ends this process if user code forked it and returned, or let an exception through, with which
  /// it ends as Python does, but without handlers of atexit: what follows belongs to the parent
  /// alone. Each answer does this first; call it where user code may return long before that.
  static void endForkedChild();

  // Answers. Each is the last step of its call. They throw Refusal if a long answer finds no room
  // in the output arena.

  void answerNothing(ClientLink& channel);
  void answerTruth(ClientLink& channel, bool truth);
  void answerValue(ClientLink& channel, const at::IValue& value);
  void answerResult(ClientLink& channel, PyRef result);
  /// Answers with the Python error that is set.
  void answerPythonError(ClientLink& channel);
  /// Answers with a MemoryError, as if the model's own code had run out of memory.
  void answerShortage(ClientLink& channel, const char* what);
  void refuse(ClientLink& channel, ipc::RefusalKind kind, std::string_view reason);
  /// The client has recalled the call before it started.
  void withdraw(ClientLink& channel);

  // Parts of an answer.

  /// Uses the conversion that the call requests.
  at::IValue valueOf(PyObject* object) const;
  /// Begins an answer. Drop other references to the value's tensors before finishValue(), which
  /// takes those that are still alive for the model's.
  void beginValue(const at::IValue& value);
  /// Exports the storages of that value, adds the counts of copied bytes, and publishes.
  void finishValue(ClientLink& channel);
  /// Drops the call's own references to its storages.
  void dropInputs();
  /// Makes private what the model keeps of the call. After dropInputs().
  void settleKept(ClientLink& channel);

  /// Returns ready(). While it is false, waits up to 5 s for messages of the supervisor, which
  /// may change it.
  bool awaitSupervisor(const std::function<bool()>& ready);

 private:
  class Arguments;

  /// Notes in the report what the call has written to. Before it, drop all references to the call's
  /// tensors.
  void collectVersions(ClientLink& channel);
  /// What the answer to this call counts as.
  ipc::Work work() const;
  /// Completes the payload of an answer that `writer_` holds, with what the client must know of its
  /// inputs. After settleKept().
  std::span<const std::byte> finish(ClientLink& channel,
                                    std::span<const ipc::StorageRecord> records);
  /// The same for an answer without tensors that must fit into its slot. A report that does not fit
  /// is left out: the client then assumes that all inputs were written to and are kept.
  std::span<const std::byte> finishInline(ClientLink& channel);
  /// Publishes the answer once; later calls have no effect. With kNoReply there is no answer, and
  /// the leases are cancelled. Throws Refusal if a long answer finds no room in the output arena.
  void publish(ClientLink& channel, ipc::CompletionStatus status, std::span<const std::byte> bytes);

  ControlPlane& control_;
  Sandbox& sandbox_;
  ShownModels& models_;
  ipc::PageHistory history_;
  std::optional<uint64_t> shownSlot_;

  ipc::ReceivedCall received_;
  const OperationEntry* operation_ = nullptr;  // of received_, in operations::kTable
  bool answered_ = false;
  bool runs_ = false;  // its code may have run
  int64_t began_ = 0;  // by ipc::monotonicNow()
  std::optional<ipc::PayloadReader> reader_;
  CallInputs inputs_;
  ipc::VersionCounters versions_;  // of the tensors that the call brought
  ipc::InputReport report_;        // for its answer
  bool sharesKept_ = false;        // what is kept of the call stays shared with the client
  CopyCounts copies_;              // of this call
  std::vector<PyObject*> stack_;   // the arguments of the Python call
  ipc::PayloadWriter writer_;
  ResultExport export_;
};

}  // namespace isopool::worker

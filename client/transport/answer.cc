// SPDX-License-Identifier: BSD-3-Clause
#include "client/transport/answer.h"

#include <ATen/core/ivalue.h>

#include <span>
#include <string>
#include <utility>

#include "client/program/copy_counter.h"
#include "client/transport/pending_request.h"
#include "client/transport/unread_messages.h"
#include "client/transport/worker_link.h"

namespace isopool::client {

Answer::Answer(std::shared_ptr<WorkerLink> channel, PendingRequest* request, uint64_t sequence,
               RequestOutcome outcome, const Deadline& deadline)
    : channel_(std::move(channel)),
      request_(request),
      sequence_(sequence),
      outcome_(outcome),
      deadline_(deadline) {}

Answer::Answer(Answer&& other) noexcept
    : channel_(std::move(other.channel_)),
      request_(std::exchange(other.request_, nullptr)),
      sequence_(other.sequence_),
      outcome_(other.outcome_),
      deadline_(other.deadline_) {}

Answer::~Answer() { giveUpSlot(); }

void Answer::giveUpSlot() {
  if (PendingRequest* request = std::exchange(request_, nullptr)) channel_->release(*request);
}

at::IValue Answer::take() {
  // Also if this throws: the code that handles the exception may wait for a thread that waits for
  // this slot.
  struct Taken {
    Answer& answer;
    ~Taken() { answer.giveUpSlot(); }
  } const taken{*this};
  if (request_->answerUnknown) {
    throw ArenaFull(channel_->name() +
                    " has run the call, and its answer can't be read: " + UnreadMessages::cause());
  }
  const std::span<const std::byte> bytes = request_->answerBytes();
  request_->takenUntil = deadline_;
  try {
    ipc::PayloadReader reader(bytes);
    switch (static_cast<ipc::CompletionStatus>(request_->completion.status)) {
      case ipc::CompletionStatus::kValue: {
        reader.setStorages(channel_->importStorages(*request_, reader));
        reader.answerTo(request_->versions);
        const msgpack::object& copies = reader.element(1);
        if (copies.type == msgpack::type::ARRAY) {
          for (uint32_t i = 0; i < copies.via.array.size; ++i) {
            const auto [reason, count] =
                copies.via.array.ptr[i].as<std::pair<uint32_t, uint64_t>>();
            countCopied(static_cast<ipc::CopyReason>(reason), count);
          }
        }
        reader.stopAt(deadline_);
        return reader.value(reader.element(0));
      }
      case ipc::CompletionStatus::kPythonError: {
        const std::string worker = channel_->name();
        throw RemoteError(worker + ": Exception Caught inside torch::deploy embedded library: \n" +
                              std::string(reader.text(3)),
                          std::string(reader.text(0)), std::string(reader.text(1)),
                          std::string(reader.text(2)), worker,
                          reader.elements() > 4 ? std::string(reader.text(4)) : std::string());
      }
      case ipc::CompletionStatus::kRefused: {
        const auto kind = static_cast<ipc::RefusalKind>(reader.integer(0));
        const std::string text = channel_->name() + ": " + std::string(reader.text(1));
        if (kind == ipc::RefusalKind::kArenaFull) throw ArenaFull(text);
        if (kind == ipc::RefusalKind::kLimitMet) throw LimitExceeded(text);
        if (kind == ipc::RefusalKind::kObjectUnloaded) throw ObjectUnloaded(text);
        if (kind == ipc::RefusalKind::kUnsupportedValue) throw UnsupportedValue(text);
        if (kind == ipc::RefusalKind::kPythonExit) {
          throw RemoteError(text, "SystemExit", std::string(reader.text(1)), "", channel_->name());
        }
        throw Error(text);
      }
      default:
        throw ipc::ValueError("the kind of an answer is unknown");
    }
  } catch (const ipc::OutOfTime&) {
    throw DeadlineExceeded("the deadline passed while the result of the call was being read from " +
                               channel_->name() + "; the call has run",
                           /*started=*/true);
  } catch (const ipc::ValueError& error) {
    channel_->poison(error.what());
    throw Error(channel_->name() + " sent an invalid answer and was killed: " + error.what());
  } catch (const msgpack::type_error& error) {
    channel_->poison(error.what());
    throw Error(channel_->name() + " sent an invalid answer and was killed: " + error.what());
  }
}

}  // namespace isopool::client

// SPDX-License-Identifier: BSD-3-Clause
// What an operator has the supervisor do. Each request becomes a line of the log.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log/log.h"
#include "supervisor/pool/printable.h"
#include "supervisor/supervisor.h"

namespace isopool::supervisor {

namespace {

constexpr size_t kLongestGroupName = 64;

ipc::ActionDone done(std::string text) {
  return {.token = 0, .done = true, .text = std::move(text)};
}

ipc::ActionDone refused(std::string text) {
  return {.token = 0, .done = false, .text = std::move(text)};
}

std::string noClient(uint64_t number) {
  return "there is no client #" + std::to_string(number) + "; isopool clients shows their numbers";
}

// A time that is too long for the clock has no end.
base::Milliseconds timeOf(const ipc::RequestAction& request) {
  constexpr uint64_t kLongest = uint64_t{366} * 24 * 3600 * 1000;
  return base::Milliseconds(std::min(request.milliseconds, kLongest));
}

std::string seconds(base::Milliseconds time) {
  if (time.count() % 1000 != 0) return std::to_string(time.count()) + " ms";
  return std::to_string(time.count() / 1000) + " s";
}

ipc::ActionDone recycle(WorkerGroup& group, Worker& worker, const std::string& by) {
  const std::string who = group.describe(worker);
  std::string refusal = group.recycle(worker, "an operator wanted it (" + by + ")");
  if (!refusal.empty()) return refused(std::move(refusal));
  return done(who + " will be replaced when a spare is ready; its running calls may end");
}

}  // namespace

ipc::ActionDone Supervisor::act(const SharedClient& operating, const ipc::RequestAction& request) {
  const Peer& peer = operating.peer();
  const std::string by =
      "user " + std::to_string(peer.userId) + ", pid " + std::to_string(peer.processId);
  ipc::ActionDone answer;
  answer.text = whyNoActions(peer);
  // Workers have the supervisor's user.
  if (answer.text.empty() && processes_.isDescendant(peer.processId)) {
    answer.text = "a worker started this process, or its ancestors can't be determined";
  }
  if (answer.text.empty()) answer = carryOut(request, by);
  base::log(base::LogLevel::kInfo,
            "an operator (" + by + ") requested an action; " +
                (answer.done ? "done: " : "refused: ") + answer.text,
            {{"client_pid", peer.processId}, {"user", peer.userId}, {"done", answer.done}});
  return answer;
}

ipc::ActionDone Supervisor::carryOut(const ipc::RequestAction& request, const std::string& by) {
  switch (static_cast<ipc::Action>(request.action)) {
    case ipc::Action::kEvictClient:
      return evict(request, by);
    case ipc::Action::kRecycleWorker:
      return recycleWorker(request.target, by);
    case ipc::Action::kRecycleSlot:
      return recycleSlot(request.group, request.target, by);
    case ipc::Action::kRecycleAll:
      return recycleAll(by);
    case ipc::Action::kPauseClient:
      return pause(request.target, timeOf(request));
    case ipc::Action::kResumeClient:
      return resume(request.target);
    case ipc::Action::kDrain:
      return drainAsAsked();
    case ipc::Action::kRestart:
      return restart();
  }
  return refused("this isopoold has no action " + std::to_string(request.action));
}

SharedClient* Supervisor::programWith(uint64_t number) {
  const auto found = clients_.find(ClientId(number));
  return found != clients_.end() && !found->second->isOperator() ? found->second.get() : nullptr;
}

ipc::ActionDone Supervisor::evict(const ipc::RequestAction& request, const std::string& by) {
  SharedClient* client = programWith(request.target);
  if (client == nullptr) return refused(noClient(request.target));
  const base::Milliseconds time = timeOf(request);
  std::string text = client->describe() + " is evicted";
  std::string reason = "an operator (" + by + ") evicted this client of the supervisor; ";
  if (time.count() == 0) {
    reason += "a manager may attach again";
  } else {
    const std::string whom = "programs of its user with the name " + client->program();
    bans_.push_back({client->peer().userId, client->program(), loop_.now() + time});
    text += "; " + whom + " are refused for " + seconds(time);
    reason += whom + " may attach again in " + seconds(time);
  }
  // Erases the client from clients_.
  evicting_ = true;
  client->refuse(reason);
  evicting_ = false;
  return done(std::move(text));
}

ipc::ActionDone Supervisor::pause(uint64_t number, base::Milliseconds time) {
  SharedClient* client = programWith(number);
  if (client == nullptr) return refused(noClient(number));
  std::string refusal = draining_ ? "the supervisor is shutting down" : client->pause(time);
  if (!refusal.empty()) return refused(std::move(refusal));
  return done(client->describe() + " is paused" +
              (time.count() != 0 ? " for " + seconds(time) : std::string()) +
              ": its calls wait, except those that its workers have");
}

ipc::ActionDone Supervisor::resume(uint64_t number) {
  SharedClient* client = programWith(number);
  if (client == nullptr) return refused(noClient(number));
  if (!client->isPaused()) return refused(client->describe() + " is not paused");
  client->resume();
  return done(client->describe() + " goes on");
}

std::string Supervisor::successorStarts() const {
  return "another supervisor is being started already; if it does not serve within " +
         seconds(successorTimeout(options_)) +
         " of its start, it is killed and this one goes on. Try again when isopool status shows "
         "which one serves; SIGTERM to the isopoold that was started first ends both now";
}

ipc::ActionDone Supervisor::drainAsAsked() {
  if (draining_) return refused("the supervisor is shutting down already");
  // The successor would go on.
  if (successor_ == kStarting) return refused(successorStarts());
  // In a later handler: the answer leaves first.
  loop_.post([this] { shutDown("an operator wanted it"); });
  return done("the supervisor (pid " + std::to_string(::getpid()) +
              ") takes no new programs and ends when calls in flight have ended, at the latest "
              "after " +
              seconds(options_.drainTimeout));
}

ipc::ActionDone Supervisor::restart() {
  if (!events_.startSuccessor) return refused("this supervisor has no guardian to restart it");
  if (draining_) return refused("the supervisor is shutting down");
  if (!served_) return refused("the supervisor does not serve yet");
  if (successor_ == kStarting) return refused(successorStarts());
  successor_ = kStarting;
  events_.startSuccessor(listener_->socket());
  return done("another supervisor is being started; this one (pid " + std::to_string(::getpid()) +
              ") serves until that one does, and ends when calls in flight have ended, at the "
              "latest after " +
              seconds(options_.drainTimeout));
}

ipc::ActionDone Supervisor::recycleWorker(uint64_t processId, const std::string& by) {
  for (const auto& [name, group] : groups_) {
    for (const auto& [epoch, worker] : group->workers()) {
      const pid_t pid = worker->pid();
      if (pid != 0 && static_cast<uint64_t>(pid) == processId) return recycle(*group, *worker, by);
    }
  }
  return refused("no worker has the process id " + std::to_string(processId) +
                 "; isopool workers shows them");
}

ipc::ActionDone Supervisor::recycleSlot(const std::string& group, uint64_t slot,
                                        const std::string& by) {
  const auto found = groups_.find(group);
  const std::string name = printable(group, kLongestGroupName);
  if (found == groups_.end()) return refused("no workers have the name " + name);
  const std::vector<Slot> slots = found->second->slotTable().slotsOf(kSharedPool);
  const std::string which = name + "/" + std::to_string(slot);
  if (slot >= slots.size()) {
    return refused("there is no slot " + which + "; isopool workers shows them");
  }
  Worker* worker = found->second->serving(slots[slot]);
  if (worker == nullptr) return refused("no worker serves the slot " + which + " now");
  return recycle(*found->second, *worker, by);
}

ipc::ActionDone Supervisor::recycleAll(const std::string& by) {
  size_t workers = 0;
  for (const auto& [name, group] : groups_) {
    for (const auto& [epoch, worker] : group->workers()) {
      if (recycle(*group, *worker, by).done) ++workers;
    }
  }
  if (workers == 0) return refused("no worker serves now");
  return done(std::to_string(workers) + (workers == 1 ? " worker" : " workers") +
              " will be replaced, of each group one after another");
}

}  // namespace isopool::supervisor

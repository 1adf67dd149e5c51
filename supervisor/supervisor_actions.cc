// SPDX-License-Identifier: BSD-3-Clause
// What an operator has the supervisor do. Each request becomes a line of the log.
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
      return evict(request.target, by);
    case ipc::Action::kRecycleWorker:
      return recycleWorker(request.target, by);
    case ipc::Action::kRecycleSlot:
      return recycleSlot(request.group, request.target, by);
    case ipc::Action::kRecycleAll:
      return recycleAll(by);
  }
  return refused("this isopoold has no action " + std::to_string(request.action));
}

ipc::ActionDone Supervisor::evict(uint64_t number, const std::string& by) {
  const auto found = clients_.find(ClientId(number));
  if (found == clients_.end() || found->second->isOperator()) {
    return refused("there is no client #" + std::to_string(number) +
                   "; isopool clients shows their numbers");
  }
  SharedClient& client = *found->second;
  ipc::ActionDone answer = done(client.describe() + " is evicted");
  // Erases the client from clients_.
  evicting_ = true;
  client.refuse("an operator (" + by +
                ") evicted this client of the supervisor; a manager may attach again");
  evicting_ = false;
  return answer;
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

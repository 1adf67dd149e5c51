// SPDX-License-Identifier: BSD-3-Clause
// Quarantines: of the group's slots, and of members whose code has ended workers.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "supervisor/pool/death_cause.h"
#include "supervisor/pool/worker_group.h"
#include "supervisor/pool/worker_status.h"

namespace isopool::supervisor {

using Kind = DeathOrigin::Kind;

void WorkerGroup::reportQuarantines() {
  if (newQuarantines_.empty()) return;
  const std::vector<Quarantine> quarantines = std::exchange(newQuarantines_, {});
  // First: a member that can call another slot instead does not learn of the quarantine.
  slotsOfMembersChanged();
  for (const Quarantine& each : quarantines) {
    const std::string text = describe(each);
    if (events_.quarantined) events_.quarantined(text);
    for (const auto& [id, member] : members_) {
      if (member->uses(each.slot)) member->slotQuarantined(each, text);
    }
  }
}

// With the last death that is known: the cause of the present one may be known only when the worker
// is reaped.
std::string WorkerGroup::describe(const Quarantine& quarantine) const {
  const auto lastExit = lastExits_.find({quarantine.slot.pool.value, quarantine.slot.index});
  return quarantine.text() +
         (lastExit == lastExits_.end() ? "" : "; the last one: " + lastExit->second.reason);
}

void WorkerGroup::slotsOfMembersChanged() {
  for (const auto& [id, member] : members_) member->slotsChanged();
}

// A private pool has one client, and what that causes counts against its slots.
DeathOrigin WorkerGroup::originOf(const Worker& worker) const {
  if (services_.options.privatePool) return {};
  std::vector<ClientId> served;
  for (const auto& [client, attachment] : worker.attachments()) {
    if (attachment.knownToWorker()) served.push_back(client);
  }
  return supervisor::originOf(readStatusPage(worker.statusPage()), served);
}

void WorkerGroup::describeOrigin(const Worker& worker, DeathReport& report) const {
  const DeathOrigin& origin = report.origin;
  for (const ClientId client : origin.clients) {
    const auto attachment = worker.attachments().find(client);
    if (attachment->second.servedCalls() == 0) report.suspects.push_back(client);
  }
  if (origin.kind == Kind::kNone) return;
  if (origin.kind == Kind::kInvalid) {
    report.whose = "its status page named a client that it does not serve";
    return;
  }
  if (origin.kind == Kind::kLeft) {
    report.whose = "no call ran, and the client whose code ran last has left";
    return;
  }
  const ClientId client = origin.clients.front();
  const GroupClient* member = memberOf(client);
  report.whose =
      (origin.kind == Kind::kCall ? "while it ran " : "no call ran, and the last one was of ") +
      (origin.model.empty() ? "code" : "model '" + origin.model + "'") + " of " +
      (member != nullptr ? member->describe()
                         : "client " + std::to_string(client.value) + ", which has left");
}

// The thread of the call that ran has crashed, by the worker's crash log.
bool WorkerGroup::crashedInItsCall(const Worker& worker, const DeathReport& report,
                                   const ExitStatus& how) const {
  return report.origin.kind == Kind::kCall && worker.deathCause() == DeathCause::kUnknown &&
         causeOf(how) == DeathCause::kCrash && crashedInCall(worker.crashLog());
}

// Where code of other programs has run, a thread that it left may have ended the worker, whatever
// ran then. So such a death counts only if the thread of the call crashed.
void WorkerGroup::settleOrigin(const Worker& worker, const ExitStatus& how,
                               DeathReport& report) const {
  const std::vector<ClientId>& named = report.origin.clients;
  const auto isSharedWithOthers = [&](ClientId client) { return worker.ranCodeOfOthers(client); };
  if (std::none_of(named.begin(), named.end(), isSharedWithOthers)) return;
  if (crashedInItsCall(worker, report, how)) return;
  std::erase_if(report.suspects, isSharedWithOthers);
  if (report.origin.kind == Kind::kInvalid) return;
  // The others were ordered by the supervisor or came from outside.
  switch (worker.deathCause(how)) {
    case DeathCause::kCrash:
    case DeathCause::kForbiddenCall:
    case DeathCause::kSignal:
    case DeathCause::kExit:
    case DeathCause::kMemoryLimit:
      break;
    default:
      return;
  }
  report.whose += "; code of other programs had run in it, too, so it may have been theirs";
}

void WorkerGroup::countAgainstMembers(const Worker& worker, const DeathReport& report,
                                      const ExitStatus& how) {
  if (over_ || report.suspects.empty()) return;
  const DeathCause cause = worker.deathCause();
  const bool fromOutside = cause == DeathCause::kStopped || cause == DeathCause::kNotStarted ||
                           (cause == DeathCause::kUnknown && how.signal == SIGKILL);
  if (report.origin.kind == Kind::kIdle && fromOutside) return;
  const std::string name =
      worker.cause().empty() ? how.name() : how.name() + " (" + worker.cause() + ")";
  for (const ClientId client : report.suspects) {
    const auto found = members_.find(client);
    if (found == members_.end()) continue;
    GroupClient& member = *found->second;
    const bool already = quarantineOf(client).has_value();
    const ClientDeath death{report.origin.model, name, member.servedCalls()};
    if (!holds_.died(client, death, services_.loop.now()).quarantined) continue;
    // A worker that it had before may die in its quarantine.
    if (already) {
      tellOwnQuarantine(member);
    } else {
      quarantine(member);
    }
  }
  scheduleHoldEnd();
}

// A death that is of no call, but perhaps of a thread that a client left. A SIGKILL may come from
// outside, and the other causes are those of one call or of the supervisor.
bool WorkerGroup::mayBeOfAnyClient(const Worker& worker, const DeathReport& report,
                                   const ExitStatus& how) const {
  if (over_ || services_.options.privatePool || report.replaced) return false;
  const bool itself = worker.deathCause() == DeathCause::kUnknown;
  switch (itself ? causeOf(how) : worker.deathCause()) {
    case DeathCause::kCrash:
      return !crashedInItsCall(worker, report, how);
    case DeathCause::kExit:
    case DeathCause::kForbiddenCall:
    case DeathCause::kSignal:
    case DeathCause::kMemoryLimit:
      return true;
    default:
      return false;
  }
}

void WorkerGroup::separate(const Worker& worker) {
  std::set<ClientId> ran = worker.clientsThatRan();
  std::erase_if(ran, [&](ClientId client) { return members_.count(client) == 0; });
  const size_t slots = slotTable_.slotsOf(kSharedPool).size();
  if (separation_.died(ran, slots, services_.loop.now())) separationChanged();
  scheduleSeparationEnd();
}

void WorkerGroup::separationChanged() {
  const size_t slots = slotTable_.slotsOf(kSharedPool).size();
  std::string text;
  for (const auto& [id, member] : members_) {
    if (!keptApart(id)) continue;
    text += text.empty() ? "" : "; ";
    text += member->describe() + " on worker";
    const char* separator = " ";
    for (const uint32_t slot : separation_.slotsOf(id, slots)) {
      text += std::exchange(separator, ", ") + std::to_string(slot);
    }
  }
  base::log(base::LogLevel::kWarning,
            !separation_.active()
                ? describe(kSharedPool) + ": all programs call all workers again"
                : "workers ended, and code of several programs had run in them that may have "
                  "caused it: until " +
                      std::to_string(services_.options.restart.quarantine.count()) +
                      " ms have passed without such a death (ISOPOOL_QUARANTINE), programs are "
                      "kept apart: " +
                      text);
  slotsOfMembersChanged();
  if (!separation_.active()) introduceMissing();
}

void WorkerGroup::scheduleSeparationEnd() {
  const std::optional<base::TimePoint> next = separation_.nextTick();
  if (!next) return separationEnd_.cancel();
  separationEnd_.setAt(*next, [this] {
    if (separation_.tick(services_.loop.now())) separationChanged();
    scheduleSeparationEnd();
  });
}

// It keeps the workers on which it has completed calls: they have shown that they can serve it.
void WorkerGroup::quarantine(GroupClient& member) {
  const std::optional<ClientHolds::ClientQuarantine> own = quarantineOf(member.id());
  if (!own) return;
  totals_.countClientQuarantine();
  base::log(base::LogLevel::kWarning, member.describe() + " " + own->text,
            {{"client", member.id().value}});
  for (const auto& [epoch, worker] : workers_) {
    const Attachment* attachment = worker->attachment(member.id());
    if (attachment == nullptr || attachment->servedCalls() != 0) continue;
    // The call of a busy one may be a long one, and ends its worker at most.
    if (!worker->busyWith(member.id())) worker->detach(member.id());
  }
  tellOwnQuarantine(member);
}

void WorkerGroup::tellOwnQuarantine(GroupClient& member) {
  if (const auto own = quarantineOf(member.id())) member.onOwnQuarantine(*own);
}

void WorkerGroup::scheduleHoldEnd() {
  const std::optional<base::TimePoint> next = holds_.nextEnd(services_.loop.now());
  if (!next) return holdEnd_.cancel();
  holdEnd_.setAt(*next, [this] {
    introduceMissing();
    scheduleHoldEnd();
  });
}

}  // namespace isopool::supervisor

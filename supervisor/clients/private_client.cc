// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/private_client.h"

#include <utility>

namespace isopool::supervisor {

using base::Epoch;
using base::PoolId;

PrivateClient::PrivateClient(Services& services, ClientId id, base::Fd socket, Events events)
    : Client(services, id, std::move(socket), std::move(events.over)),
      ownGroup_(services, "", WorkerGroup::Events{.reaped = std::move(events.reaped)}) {
  group_ = &ownGroup_;
  group_->join(*this);
}

PrivateClient::~PrivateClient() { ownGroup_.forget(id()); }

std::string PrivateClient::describe() const { return "client " + std::to_string(id().value); }

bool PrivateClient::serves(uint32_t role) const {
  return role == static_cast<uint32_t>(ipc::ClientRole::kProgram);
}

// The program has given this process its socket: no other process can connect.
std::string PrivateClient::admit(const ipc::Hello&, const base::Fd&) { return {}; }

void PrivateClient::welcome() { sendWelcome({}); }

void PrivateClient::openPool(PoolId pool, uint32_t workers) {
  if (group_->hasPool(pool)) throw ipc::ProtocolError("OpenPool of a pool that is open");
  group_->openPool(pool, workers);
}

void PrivateClient::closePool(PoolId pool) { group_->closePool(pool); }

void PrivateClient::reportDeath(Epoch epoch, const std::string& reason, bool overdue) {
  const DeathCause cause = overdue ? DeathCause::kOverdue : DeathCause::kReported;
  if (group_->find(epoch) == nullptr) return group_->blameReaped(epoch, cause, reason);
  if (Worker* worker = judged(epoch)) group_->loseWorker(*worker, cause, reason);
}

// No other program has packages with the same bytes, and the client waits for no answer.
void PrivateClient::takePackage(const ipc::LoadPackage& message,
                                std::shared_ptr<PackageMemory> memory) {
  holdPackage(message, std::move(memory), nullptr);
}

void PrivateClient::leaveGroup() { ownGroup_.end(); }

void PrivateClient::slotServed(const Slot& slot, Epoch epoch) {
  sendAssignment(slot.pool, slot.index, epoch);
}

void PrivateClient::slotQuarantined(const Quarantine& quarantine, const std::string& text) {
  sendQuarantine(quarantine.slot.pool, quarantine.slot.index, quarantine, text);
}

void PrivateClient::onNoWorkers(const std::string& text) { refuse(text); }

}  // namespace isopool::supervisor

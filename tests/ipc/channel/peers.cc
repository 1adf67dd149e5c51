// SPDX-License-Identifier: BSD-3-Clause
#include "tests/ipc/channel/peers.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/parent_death.h"
#include "base/system_call.h"
#include "ipc/channel/liveness_word.h"

namespace isopool::tests {

using ipc::Access;
using ipc::kClientControlBytes;
using ipc::kPageBytes;
using ipc::kWorkerControlBytes;
using ipc::Mapping;
using ipc::Prefault;

ChannelMemory::ChannelMemory(Views views) {
  const base::Fd client = ipc::createMemoryObject("client", kClientControlBytes);
  const base::Fd worker = ipc::createMemoryObject("worker", kWorkerControlBytes);
  if (views == Views::kSealed) {
    const auto map = [](const base::Fd& object, size_t bytes, Access access) {
      return ipc::mapShared(object, 0, bytes, access, Prefault::kYes);
    };
    clientOwn_ = map(client, kClientControlBytes, Access::kReadWrite);
    workerOwn_ = map(worker, kWorkerControlBytes, Access::kReadWrite);
    ipc::sealMemoryObject(client, ipc::Seal::kSingleWriter);
    ipc::sealMemoryObject(worker, ipc::Seal::kSingleWriter);
    workerPeer_ = map(client, kClientControlBytes, Access::kReadOnly);
    clientPeer_ = map(worker, kWorkerControlBytes, Access::kReadOnly);
    return;
  }
  reservation_ =
      ipc::reserveAddressSpace(kClientControlBytes + kWorkerControlBytes + 3 * kPageBytes);
  std::byte* clientData = reservation_.data() + kPageBytes;
  std::byte* workerData = clientData + kClientControlBytes + kPageBytes;
  ipc::mapSharedAt(clientData, client, 0, kClientControlBytes, Access::kReadWrite, Prefault::kYes);
  ipc::mapSharedAt(workerData, worker, 0, kWorkerControlBytes, Access::kReadWrite, Prefault::kYes);
  clientControl_ = reinterpret_cast<ipc::ClientControl*>(clientData);
  workerControl_ = reinterpret_cast<ipc::WorkerControl*>(workerData);
  // Mappings of 0 bytes, so that the ends unmap nothing: the reservation owns the pages.
  clientOwn_ = Mapping(clientData, 0);
  workerPeer_ = Mapping(clientData, 0);
  workerOwn_ = Mapping(workerData, 0);
  clientPeer_ = Mapping(workerData, 0);
}

Peer::Peer(PeerKind kind, std::function<void()> life) {
  if (kind == PeerKind::kThread) {
    thread_ = std::thread(std::move(life));
    return;
  }
  const pid_t self = ::getpid();
  pid_ = base::checkSystemCall(::fork(), "fork");
  if (pid_ == 0) {
    // The kernel kills the child if the test crashes or is stopped.
    base::endWithParent(self);
    life();
    ::_exit(0);
  }
  pidfd_ = base::Fd(base::checkSystemCall(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)),
                                          "pidfd_open", pid_));
}

Peer::~Peer() {
  if (pid_ != -1) ::kill(pid_, SIGKILL);
  waitForEnd();
}

void Peer::signal(int number) const { ::kill(pid_, number); }

bool Peer::gone(std::chrono::milliseconds patience) const {
  pollfd watched{pidfd_.get(), POLLIN, 0};
  return ::poll(&watched, 1, static_cast<int>(patience.count())) == 1;
}

int Peer::waitForEnd() {
  int status = 0;
  if (thread_.joinable()) thread_.join();
  if (pid_ != -1) ::waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

namespace {

/// Any function of the number is suitable if neighbours differ in every word.
uint64_t scrambled(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

}  // namespace

std::vector<std::byte> contentOf(uint64_t number) {
  std::vector<std::byte> bytes(scrambled(number) % (ipc::kInlineBytes + 1));
  for (size_t at = 0; at < bytes.size(); at += sizeof number) {
    const uint64_t word = scrambled(number + at);
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
  }
  return bytes;
}

bool isContentOf(uint64_t number, const std::byte* bytes, uint32_t count) {
  const std::vector<std::byte> expected = contentOf(number);
  return std::equal(expected.begin(), expected.end(), bytes, bytes + count);
}

ipc::OutgoingCall callWith(const std::vector<std::byte>& content) {
  ipc::OutgoingCall call;
  call.payload = payloadWith(content);
  return call;
}

ipc::OutgoingPayload payloadWith(const std::vector<std::byte>& content) {
  ipc::OutgoingPayload payload;
  payload.inlineBytes = content;
  return payload;
}

void sleepUntilCall(ipc::WorkerEnd& end) {
  while (!end.callReady()) {
    end.announceSleep();
    const auto [word, expected] = end.watch();
    const ipc::FutexWatch call{word, expected};
    if (!end.callReady()) ipc::futexWait({&call, 1}, std::nullopt);
    end.withdrawSleep();
  }
}

Awaited sleepUntilCompletion(ipc::ClientEnd& end) {
  constexpr std::chrono::seconds kPatience(5);
  constexpr int64_t kLate = 1'000'000'000;
  const int64_t begin = ipc::monotonicNow();
  for (;;) {
    end.announceSleep();
    const std::array watches{end.completionWatch(), ipc::watchLivenessWord(end.peer())};
    // Reads the liveness word first, so that what the worker published before its death is seen.
    const bool dead = ipc::livenessWordOwnerDied(end.peer());
    const bool ready = end.completionReady();
    if (!dead && !ready) ipc::futexWait(watches, kPatience);
    end.withdrawSleep();
    // A time-out may show a change for which no wake-up came: that is late.
    if (ipc::monotonicNow() - begin > kLate) return Awaited::kLate;
    if (ready) return Awaited::kReady;
    if (dead) return Awaited::kDead;
  }
}

void serve(ipc::WorkerEnd& end,
           const std::function<std::vector<std::byte>(const ipc::ReceivedCall&)>& run) {
  ipc::ReceivedCall call;
  for (;;) {
    sleepUntilCall(end);
    if (end.peek(call) != ipc::Received::kOne) return;
    end.taken();
    if (end.start(call.sequence) == ipc::Start::kRecalled) {
      end.complete(call.sequence, ipc::CompletionStatus::kWithdrawn, {});
      continue;
    }
    const std::vector<std::byte> answer = run(call);
    if ((call.flags & ipc::kNoReply) == 0) {
      end.complete(call.sequence, ipc::CompletionStatus::kValue, payloadWith(answer));
    }
    if (call.flags == kFarewell) return;
  }
}

}  // namespace isopool::tests

// SPDX-License-Identifier: BSD-3-Clause
// A client's memory: the segments that it declares, the packages that it loads, the segments that
// workers get for its results, and the limits of all of these.
#include <algorithm>
#include <bit>
#include <utility>

#include "ipc/control/client_messages.h"
#include "ipc/control/worker_messages.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"
#include "supervisor/clients/client.h"

namespace isopool::supervisor {

using base::Epoch;
using ipc::ProtocolError;

namespace {

constexpr uint64_t kSmallestSegment = 8u << 20;
constexpr size_t kLongestReportedName = 256;
// Bounds the records of refused segments: they are kept, because workers answer calls that use such
// a segment with the refusal.
constexpr size_t kMostRefusedSegments = 4096;

// Rounds up to a multiple of a quarter of the largest power of two in `bytes`: at most a quarter is
// unused. For many small results a segment is larger, so that segments stay few: each one takes a
// descriptor.
uint64_t sizeClass(uint64_t bytes, uint64_t present) {
  if (bytes <= kSmallestSegment) {
    return std::max<uint64_t>(kSmallestSegment, ipc::roundUpToPages(present / 8));
  }
  const uint64_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

uint64_t Client::packageBytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, package] : packages_) bytes += package.memory->digest.bytes;
  return bytes;
}

uint64_t Client::sumOverWorkers(uint64_t (Attachment::*figure)() const) const {
  uint64_t sum = 0;
  if (group_ == nullptr) return sum;
  for (const auto& [epoch, worker] : group_->workers()) {
    if (const Attachment* attachment = worker->attachment(id_)) sum += (attachment->*figure)();
  }
  return sum;
}

uint64_t Client::outputBytes() const { return sumOverWorkers(&Attachment::outputBytes); }

size_t Client::declaredDescriptors() const {
  return segmentsHeld_ + packages_.size() + sumOverWorkers(&Attachment::outputDescriptors);
}

uint64_t Client::handleBytes() const { return sumOverWorkers(&Attachment::handleBytes); }

std::string Client::refusalOfMemory(uint64_t bytes, const char* what) const {
  const uint64_t limit = limits().memory;
  if (limit == 0) return {};
  const uint64_t held = declaredBytes() + packageBytes() + outputBytes() + handleBytes();
  if (bytes <= limit && held <= limit - bytes) return {};
  return std::string(what) + " of " + std::to_string(bytes) +
         " bytes is refused: the program holds " + std::to_string(held) +
         " bytes of inputs, packages, results and handles and may hold " + std::to_string(limit) +
         " (limits.memory, ISOPOOL_CLIENT_MEMORY)";
}

void Client::declareInputSegment(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::DeclareInputSegment>(frame);
  const auto segment = std::make_shared<InputSegment>();
  segment->object = onlyDescriptor(frame);
  segment->bytes = message.bytes;
  // Before any other process has it: user code in a worker could seal it for all later workers.
  if (!ipc::memoryObjectHas(segment->object, segment->bytes, ipc::Seal::kFixedSize) ||
      !ipc::keepWritable(segment->object)) {
    throw ProtocolError(
        "an input segment does not have the declared size, or not the seals that it needs");
  }
  if (retiredInputs_.count(message.segment) != 0 ||
      !inputSegments_.try_emplace(message.segment, segment).second) {
    throw ProtocolError("an input segment was declared twice");
  }
  ClientLimit met = ClientLimit::kMemory;
  segment->refusal = refusalOfMemory(segment->bytes, "a segment for inputs");
  if (segment->refusal.empty()) {
    met = ClientLimit::kDescriptors;
    segment->refusal = refusalOfDescriptor();
  }
  if (segment->refusal.empty()) {
    ++segmentsHeld_;
    inputBytes_ += segment->bytes;
  } else {
    segment->object.close();
    countRefusal(met);
    trimOutputs();  // for the next one
    if (++segmentsRefused_ > kMostRefusedSegments) {
      return refuse("the program still declares segments for inputs after " +
                    std::to_string(kMostRefusedSegments) +
                    " refusals; the last reason: " + segment->refusal);
    }
  }
  visitListeningWorkers([&](Worker& worker) { worker.mapSegment(id_, message.segment, segment); });
}

void Client::retireInputSegment(const ipc::RetireInputSegment& message) {
  const auto found = inputSegments_.find(message.segment);
  if (found == inputSegments_.end()) {
    throw ProtocolError("RetireInputSegment of a segment that is not declared");
  }
  if (found->second->refusal.empty()) {
    inputBytes_ -= found->second->bytes;
  } else {
    --segmentsRefused_;
  }
  retiredInputs_.insert(inputSegments_.extract(found));
  visitListeningWorkers([&](Worker& worker) { worker.unmapSegment(id_, message.segment); });
  releaseRetiredInputs();
}

// A worker that is being detached or has died uses no number any more.
bool Client::isUnmapping(uint32_t segment) const {
  bool found = false;
  visitListeningWorkers([&](Worker& worker) {
    found = found || worker.attachment(id_)->unmapping.count(segment) != 0;
  });
  return found;
}

void Client::releaseRetiredInputs() {
  for (auto entry = retiredInputs_.begin(); entry != retiredInputs_.end();) {
    const auto& [number, segment] = *entry;
    if (isUnmapping(number)) {
      ++entry;
      continue;
    }
    if (segment->refusal.empty()) --segmentsHeld_;
    connection_.send(ipc::InputSegmentReleased{number});
    ipc::reachCrashPoint(ipc::CrashPoint::kInputSegmentReleasedSent);
    entry = retiredInputs_.erase(entry);
  }
}

// The client has emptied these segments. The kernel knows whether it is true, and whether any
// process has written to them since.
uint64_t Client::retiredInputBytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, segment] : retiredInputs_) {
    bytes += ipc::heldBytes(segment->object);
  }
  return bytes;
}

template <typename Visit>
void Client::visitListeningWorkers(Visit&& visit) const {
  if (group_ == nullptr) return;
  for (const auto& [epoch, worker] : group_->workers()) {
    const Attachment* attachment = worker->attachment(id_);
    if (worker->stage() != Worker::Stage::kDying && attachment != nullptr &&
        attachment->listening()) {
      visit(*worker);
    }
  }
}

void Client::loadPackage(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::LoadPackage>(frame);
  auto memory = std::make_shared<PackageMemory>();
  memory->object = onlyDescriptor(frame);
  memory->digest = {message.digestLow, message.digestHigh, message.bytes};
  memory->name = message.name.substr(0, kLongestReportedName);
  const auto seal = message.shared ? ipc::Seal::kFixedSize : ipc::Seal::kReadOnly;
  if (!ipc::memoryObjectHas(memory->object, message.bytes, seal) ||
      (message.shared && !ipc::keepWritable(memory->object))) {
    throw ProtocolError("a package does not have the declared size, or is not sealed");
  }
  if (packages_.count(message.package) != 0) throw ProtocolError("a package was loaded twice");
  takePackage(message, std::move(memory));
}

void Client::holdPackage(const ipc::LoadPackage& message, std::shared_ptr<PackageMemory> memory,
                         std::shared_ptr<PackageMemory> candidate) {
  Package& package = packages_[message.package] = {.memory = std::move(memory),
                                                   .name = message.name,
                                                   .shared = message.shared,
                                                   .candidate = std::move(candidate)};
  if (package.candidate == nullptr) mapPackage(message.package, package);
}

void Client::confirmPackage(const ipc::ConfirmPackage& message) {
  const auto found = packages_.find(message.package);
  if (found == packages_.end() || found->second.candidate == nullptr) {
    throw ProtocolError("ConfirmPackage of a package that is not being compared");
  }
  Package& package = found->second;
  const auto candidate = std::exchange(package.candidate, nullptr);
  if (message.same) package.memory = candidate;
  mapPackage(message.package, package);
}

void Client::mapPackage(uint32_t number, Package& package) {
  package.mapped = true;
  visitListeningWorkers([&](Worker& worker) { tell(worker, number, package); });
}

void Client::tell(Worker& worker, uint32_t number, const Package& package) {
  worker.mapPackage({id_.value, number, package.memory->digest.bytes, package.name, package.shared},
                    package.memory);
}

void Client::unloadPackage(const ipc::UnloadPackage& message) {
  if (packages_.erase(message.package) == 0) return;
  ipc::reachCrashPoint(ipc::CrashPoint::kPackageForgotten);
  visitListeningWorkers([&](Worker& worker) { worker.unmapPackage(id_, message.package); });
}

// A call that waits for room runs: it must not meet its limit of time first, whose error would not
// name the limit of memory.
uint32_t Client::patienceOfCalls() const {
  constexpr base::Milliseconds kPatience(2000);
  const base::Milliseconds time = callTime();
  return static_cast<uint32_t>(
      (time.count() == 0 ? kPatience : std::min(kPatience, time / 2)).count());
}

void Client::segmentWanted(Worker& worker, uint64_t bytes) {
  const uint64_t limit = services_.options.outputArenaLimit;
  Attachment& attachment = *worker.attachment(id_);
  attachment.closeRetired();
  uint64_t size = bytes <= limit ? sizeClass(bytes, attachment.outputBytes()) : bytes;
  if (!refusalOfMemory(size, "").empty()) size = ipc::roundUpToPages(bytes);
  const std::string refusal = refusalOfMemory(size, "shared memory for results");
  // What the worker has removed counts until the client has unmapped it.
  attachment.wantedBytes = bytes;
  if (!refusal.empty()) {
    trimOutputs();
    if (attachment.awaitsClient()) return;
    attachment.wantedBytes = 0;
    countRefusal(ClientLimit::kMemory);
    return worker.send(ipc::RefuseOutputSegment{id_.value, refusal, /*clientLimit=*/true,
                                                /*ofSystem=*/false, patienceOfCalls()});
  }
  std::optional<uint32_t> number = attachment.reserveSegment(size, limit);
  if (!number && bytes <= limit) {
    // Small results share what is left, so that segments stay few.
    const uint64_t left = limit - std::min(limit, attachment.outputBytes());
    const uint64_t shared =
        bytes <= kSmallestSegment ? left / ipc::kPageBytes * ipc::kPageBytes : 0;
    size = std::max<uint64_t>(ipc::roundUpToPages(bytes), std::min(size, shared));
    number = attachment.reserveSegment(size, limit);
  }
  if (!number && attachment.awaitsClient()) return;
  attachment.wantedBytes = 0;
  if (!number) {
    worker.send(ipc::RefuseOutputSegment{
        id_.value,
        "the worker's output arena holds " + std::to_string(attachment.outputBytes()) +
            " bytes, another " + std::to_string(bytes) + " would exceed the limit of " +
            std::to_string(limit) + " bytes (ISOPOOL_OUTPUT_ARENA_LIMIT)",
        /*clientLimit=*/false, /*ofSystem=*/false, patienceOfCalls()});
    return;
  }
  services_.stock.makeSegment(size, [self = self_.weak(), epoch = worker.epoch(), number = *number,
                                     size](base::Fd segment, const std::string& failure) {
    if (Client* alive = self.get()) {
      alive->grantSegment(epoch, number, size, std::move(segment), failure);
    }
  });
}

void Client::grantSegment(Epoch epoch, uint32_t number, uint64_t bytes, base::Fd segment,
                          const std::string& failure) {
  Worker* worker = group_ != nullptr ? group_->find(epoch) : nullptr;
  if (worker == nullptr || worker->stage() == Worker::Stage::kDying) return;
  Attachment* attachment = worker->attachment(id_);
  if (attachment == nullptr) return;
  if (!segment.valid()) {
    attachment->releaseSegment(bytes);
    worker->send(ipc::RefuseOutputSegment{id_.value, failure, /*clientLimit=*/false,
                                          /*ofSystem=*/true, 0});
    return;
  }
  // To the client first: it must know the segment before the worker writes a result into it.
  connection_.send(ipc::GrantOutputSegment{epoch.value, number, bytes}, {segment.get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentGranted);
  const auto shared = std::make_shared<const base::Fd>(std::move(segment));
  attachment->granted(number, bytes, shared);
  worker->grantOutput({id_.value, number, bytes}, shared);
}

void Client::segmentRetired(Worker& worker, uint32_t segment) {
  if (protocolVersion_ >= ipc::kRetiresSegments) {
    connection_.send(ipc::UnmapOutputSegment{worker.epoch().value, segment});
    return ipc::reachCrashPoint(ipc::CrashPoint::kUnmapOutputSegmentSent);
  }
  // An older client keeps it mapped: then it counts as long as the channel lives.
  worker.attachment(id_)->unmappedByClient(segment);
}

void Client::outputSegmentUnmapped(const ipc::OutputSegmentUnmapped& message) {
  Worker* worker = group_ != nullptr ? group_->find(Epoch(message.epoch)) : nullptr;
  Attachment* attachment = worker != nullptr ? worker->attachment(id_) : nullptr;
  // The worker may have died, or the channel may have been replaced, since UnmapOutputSegment was
  // sent.
  if (attachment == nullptr || !attachment->unmappedByClient(message.segment)) return;
  attachment->closeRetired();
  if (worker->stage() == Worker::Stage::kDying || !attachment->listening()) return;
  const uint64_t wanted = std::exchange(attachment->wantedBytes, 0);
  if (wanted != 0) segmentWanted(*worker, wanted);
}

void Client::trimOutputs() {
  visitListeningWorkers([&](Worker& worker) {
    if (worker.attachment(id_)->knownToWorker()) worker.send(ipc::TrimOutput{id_.value});
  });
}

}  // namespace isopool::supervisor

// SPDX-License-Identifier: BSD-3-Clause
// A client's memory: the segments that it declares, the packages that it loads, the segments that
// workers get for its results, and the limits of all of these.
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
// unused.
uint64_t sizeClass(uint64_t bytes) {
  if (bytes <= kSmallestSegment) return kSmallestSegment;
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

uint64_t Client::handleBytes() const { return sumOverWorkers(&Attachment::handleBytes); }

std::string Client::refusalOfMemory(uint64_t bytes, const char* what) const {
  const uint64_t limit = limits().memory;
  if (limit == 0) return {};
  const uint64_t held = inputBytes_ + packageBytes() + outputBytes() + handleBytes();
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
  if (!ipc::memoryObjectHas(segment->object, segment->bytes, ipc::Seal::kFixedSize)) {
    throw ProtocolError("an input segment does not have the declared size, or is not sealed");
  }
  if (!inputSegments_.try_emplace(message.segment, segment).second) {
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
    if (inputSegments_.size() - segmentsHeld_ > kMostRefusedSegments) {
      return refuse("the program still declares segments for inputs after " +
                    std::to_string(kMostRefusedSegments) +
                    " refusals; the last reason: " + segment->refusal);
    }
  }
  visitListeningWorkers([&](Worker& worker) { worker.mapSegment(id_, message.segment, segment); });
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
  if (!ipc::memoryObjectHas(memory->object, message.bytes, seal)) {
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

void Client::segmentWanted(Worker& worker, uint64_t bytes) {
  const uint64_t limit = services_.options.outputArenaLimit;
  Attachment& attachment = *worker.attachment(id_);
  uint64_t size = bytes <= limit ? sizeClass(bytes) : bytes;
  if (!refusalOfMemory(size, "").empty()) size = ipc::roundUpToPages(bytes);
  const std::string refusal = refusalOfMemory(size, "shared memory for results");
  if (!refusal.empty()) {
    countRefusal(ClientLimit::kMemory);
    return worker.send(ipc::RefuseOutputSegment{id_.value, refusal, /*clientLimit=*/true});
  }
  std::optional<uint32_t> number = attachment.reserveSegment(size, limit);
  if (!number && bytes <= limit) {
    size = ipc::roundUpToPages(bytes);
    number = attachment.reserveSegment(size, limit);
  }
  if (!number) {
    worker.send(ipc::RefuseOutputSegment{
        id_.value,
        "the worker's output arena holds " + std::to_string(attachment.outputBytes()) +
            " bytes, another " + std::to_string(bytes) + " would exceed the limit of " +
            std::to_string(limit) + " bytes (ISOPOOL_OUTPUT_ARENA_LIMIT)",
        /*clientLimit=*/false});
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
    worker->send(ipc::RefuseOutputSegment{id_.value, failure, /*clientLimit=*/false});
    return;
  }
  // To the client first: it must know the segment before the worker writes a result into it.
  connection_.send(ipc::GrantOutputSegment{epoch.value, number, bytes}, {segment.get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kOutputSegmentGranted);
  worker->grantOutput({id_.value, number, bytes}, std::move(segment));
}

}  // namespace isopool::supervisor

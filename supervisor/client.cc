// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/client.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <boost/asio/post.hpp>
#include <utility>

#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "ipc/memory/memory_object.h"
#include "ipc/system_call.h"
#include "supervisor/log.h"

namespace isopool::supervisor {

using ipc::CrashPoint;
using ipc::Epoch;
using ipc::MessageType;
using ipc::PoolId;
using ipc::ProtocolError;

namespace {

constexpr uint32_t kMaxWorkersPerPool = 4096;
constexpr uint64_t kSmallestSegment = 8u << 20;
constexpr Milliseconds kZygoteRetry(1000);

ipc::Fd onlyDescriptor(ipc::Frame& frame) {
  if (frame.descriptors.size() != 1) throw ProtocolError("a message lacks its descriptor");
  return std::move(frame.descriptors.front());
}

// Classes a quarter of a power of two apart: at most a quarter is given in vain.
uint64_t sizeClass(uint64_t bytes) {
  if (bytes <= kSmallestSegment) return kSmallestSegment;
  const uint64_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

Client::Client(Services& services, ClientId id, ipc::Fd socket, Events events)
    : services_(services),
      id_(id),
      events_(std::move(events)),
      roster_(*this, services.options.spares, services.options.restart),
      connection_(services.io, std::move(socket),
                  Connection::Events{[this](ipc::Frame& frame) { handle(frame); },
                                     [this](const std::string& reason) { end(reason); }, nullptr}),
      tick_(services.io),
      self_(std::make_shared<Client*>(this)) {}

Client::~Client() = default;

void Client::zygoteReady() {
  if (saidHello_ && !welcomed_) welcome();
}

void Client::zygoteStruggles() {
  const std::string text = "no worker can be started: " + services_.zygote.lastFailure();
  if (roster_.poolWithoutWorker()) return refuse(text);
  for (const Slot& slot : roster_.unservedSlots()) {
    connection_.send(ipc::SlotQuarantined{slot.pool.value, slot.index, 0,
                                          static_cast<uint32_t>(kZygoteRetry.count()), text});
  }
}

void Client::refuse(const std::string& text) {
  if (over_) return;
  connection_.send(ipc::Failure{text});
  end(text);
}

void Client::appendPids(std::vector<pid_t>& pids) const {
  for (const auto& [epoch, worker] : workers_) {
    if (worker->pid() != 0) pids.push_back(worker->pid());
  }
}

// ---- what the client says --------------------------------------------------------------------

void Client::handle(ipc::Frame& frame) {
  if (over_) return;
  try {
    if (!saidHello_ && frame.type != MessageType::kHello) {
      throw ProtocolError("the first message is not Hello");
    }
    switch (frame.type) {
      case MessageType::kHello:
        return hello(frame);
      case MessageType::kOpenPool:
        return openPool(ipc::decodeMessage<ipc::OpenPool>(frame));
      case MessageType::kClosePool:
        roster_.closePool(PoolId(ipc::decodeMessage<ipc::ClosePool>(frame).pool));
        return scheduleTick();
      case MessageType::kDeclareInputSegment:
        return declareInputSegment(frame);
      case MessageType::kLoadPackage:
        return loadPackage(frame);
      case MessageType::kUnloadPackage:
        return unloadPackage(ipc::decodeMessage<ipc::UnloadPackage>(frame));
      case MessageType::kChannelMapped:
        return channelMapped(ipc::decodeMessage<ipc::ChannelMapped>(frame));
      case MessageType::kReportDeath:
        return reportDeath(ipc::decodeMessage<ipc::ReportDeath>(frame));
      case MessageType::kRequestStatistics:
        return sendStatistics(ipc::decodeMessage<ipc::RequestStatistics>(frame).token);
      default:
        throw ProtocolError("a client sends no message of type " +
                            std::to_string(static_cast<uint32_t>(frame.type)));
    }
  } catch (const ProtocolError& error) {
    refuse(std::string("the control connection broke the protocol: ") + error.what());
  }
}

void Client::hello(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::Hello>(frame);
  if (message.protocolVersion != ipc::kProtocolVersion ||
      message.layoutVersion != ipc::kLayoutVersion) {
    return refuse("libisopool and isopoold are of different versions: protocol " +
                  std::to_string(message.protocolVersion) + " and " +
                  std::to_string(ipc::kProtocolVersion) + ", memory layout " +
                  std::to_string(message.layoutVersion) + " and " +
                  std::to_string(ipc::kLayoutVersion));
  }
  if (saidHello_) throw ProtocolError("Hello twice");
  saidHello_ = true;
  pidfd_ = onlyDescriptor(frame);
  deathWatch_.emplace(services_.io, pidfd_.get());
  deathWatch_->onReadable([this] { end(""); });
  if (services_.zygote.readiness()) welcome();
}

void Client::welcome() {
  welcomed_ = true;
  const ipc::ZygoteReady& zygote = *services_.zygote.readiness();
  const ipc::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  connection_.send(ipc::Welcome{ipc::kProtocolVersion, ::getpid(), services_.zygote.pid(),
                                zygote.pythonVersion, zygote.torchVersion, zygote.lifeWordWorks},
                   {pidfd.get()});
}

void Client::openPool(const ipc::OpenPool& message) {
  const PoolId pool(message.pool);
  if (roster_.hasPool(pool)) throw ProtocolError("OpenPool of a pool that is open");
  if (message.workers == 0 || message.workers > kMaxWorkersPerPool) {
    throw ProtocolError("OpenPool of " + std::to_string(message.workers) + " workers; 1 to " +
                        std::to_string(kMaxWorkersPerPool) + " are possible");
  }
  roster_.openPool(pool, message.workers);
}

void Client::declareInputSegment(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::DeclareInputSegment>(frame);
  InputSegment segment{onlyDescriptor(frame), message.bytes};
  if (!ipc::memoryObjectHas(segment.object, segment.bytes, ipc::Seal::kFixedSize)) {
    throw ProtocolError("an input segment is not of its size or not sealed");
  }
  const auto [declared, isNew] = inputSegments_.try_emplace(message.segment, std::move(segment));
  if (!isNew) throw ProtocolError("an input segment was declared twice");
  for (const auto& [epoch, worker] : workers_) {
    if (!worker->listening()) continue;
    worker->send(ipc::MapInputSegment{id_.value, message.segment, message.bytes},
                 {declared->second.object.get()});
  }
}

void Client::loadPackage(ipc::Frame& frame) {
  const auto message = ipc::decodeMessage<ipc::LoadPackage>(frame);
  Package package{onlyDescriptor(frame), message.bytes, message.name, message.shared};
  const auto seal = package.shared ? ipc::Seal::kFixedSize : ipc::Seal::kReadOnly;
  if (!ipc::memoryObjectHas(package.object, package.bytes, seal)) {
    throw ProtocolError("a package is not of its size or not sealed");
  }
  const auto [loaded, isNew] = packages_.try_emplace(message.package, std::move(package));
  if (!isNew) throw ProtocolError("a package was loaded twice");
  for (const auto& [epoch, worker] : workers_) {
    if (!worker->listening()) continue;
    worker->send(
        ipc::MapPackage{id_.value, message.package, message.bytes, message.name, message.shared},
        {loaded->second.object.get()});
  }
}

void Client::unloadPackage(const ipc::UnloadPackage& message) {
  if (packages_.erase(message.package) == 0) return;
  for (const auto& [epoch, worker] : workers_) {
    if (worker->listening()) worker->send(ipc::UnmapPackage{id_.value, message.package});
  }
}

void Client::channelMapped(const ipc::ChannelMapped& message) {
  Worker* worker = find(Epoch(message.epoch));
  // It may have died since.
  if (worker == nullptr || worker->stage() == Worker::Stage::kDying) return;
  if (worker->stage() != Worker::Stage::kIntroduced) {
    throw ProtocolError("ChannelMapped for a channel that was not offered");
  }
  if (!ipc::memoryObjectHas(worker->memory().clientControl, ipc::kClientControlBytes,
                            ipc::Seal::kSingleWriter)) {
    throw ProtocolError("ChannelMapped before the control segment was sealed");
  }
  worker->attach(id_.value);
  // After the channel that they belong to: a worker knows a client by its channel.
  for (const auto& [number, package] : packages_) {
    worker->send(ipc::MapPackage{id_.value, number, package.bytes, package.name, package.shared},
                 {package.object.get()});
  }
  for (const auto& [number, segment] : inputSegments_) {
    worker->send(ipc::MapInputSegment{id_.value, number, segment.bytes}, {segment.object.get()});
  }
}

void Client::reportDeath(const ipc::ReportDeath& message) {
  Worker* worker = find(Epoch(message.epoch));
  if (worker == nullptr) return;
  const bool known = worker->stage() == Worker::Stage::kDying;
  worker->kill();
  if (!known) workerLost(*worker, message.reason);
}

void Client::sendStatistics(uint64_t token) {
  ipc::Statistics statistics;
  statistics.token = token;
  statistics.restarts = restarts_;
  statistics.zygoteRestarts = services_.zygote.restarts();
  statistics.zygoteProcessId = services_.zygote.pid();
  for (const auto& [number, package] : packages_) statistics.sharedBytes += package.bytes;
  for (const auto& [number, segment] : inputSegments_) statistics.sharedBytes += segment.bytes;
  for (const auto& [epoch, worker] : workers_) {
    statistics.sharedBytes += worker->sharedBytes();
    const std::optional<Roster::Seat> seat = roster_.seatOf(epoch);
    if (!seat) continue;
    ipc::WorkerStatistics entry;
    entry.epoch = epoch.value;
    entry.processId = worker->pid();
    if (seat->slot) {
      entry.pool = seat->slot->pool.value;
      entry.slot = seat->slot->index;
    }
    entry.spare = !seat->slot;
    entry.completedCalls = worker->completedCalls();
    entry.outputBytes = worker->outputBytes();
    statistics.workers.push_back(entry);
  }
  connection_.send(statistics);
}

void Client::end(const std::string& reason) {
  if (std::exchange(over_, true)) return;
  deathWatch_.reset();
  tick_.cancel();
  for (const auto& [epoch, worker] : workers_) worker->kill();
  events_.over(reason);
}

// ---- what its workers do ---------------------------------------------------------------------

void Client::workerReady(Worker& worker) {
  try {
    worker.setMemory(services_.stock.take());
  } catch (const ipc::SystemCallError& error) {
    worker.kill();
    return workerLost(worker, std::string("there is no shared memory for it: ") + error.what());
  }
  const std::optional<Roster::Seat> seat = roster_.seatOf(worker.epoch());
  const ChannelMemory& memory = worker.memory();
  connection_.send(ipc::IntroduceWorker{worker.epoch().value, worker.pid(), memory.outputBytes,
                                        seat && !seat->slot},
                   {worker.pidfd().get(), memory.clientControl.get(), memory.workerControl.get(),
                    memory.output.get(), worker.lastWords().get()});
  worker.introduced();
  ipc::reachCrashPoint(CrashPoint::kWorkerIntroduced);
}

void Client::workerAttached(Worker& worker) { roster_.workerUsable(worker.epoch()); }

void Client::workerLost(Worker& worker, const std::string& reason) {
  if (over_) return;
  const Death death = worker.deathNow();
  const bool servedNothing = worker.wasIntroduced() && death == Death::kBarren;
  const std::string text =
      describe(worker) + ": " + reason + (servedNothing ? "; it had completed no call" : "");
  ++restarts_;
  roster_.workerLost(worker.epoch(), death, now());  // first of all, callers wait
  log(LogLevel::kWarning, text);
  scheduleTick();
  if (services_.zygote.struggling()) zygoteStruggles();
}

void Client::workerGone(Worker& worker, const std::optional<ExitStatus>& status) {
  ipc::reachCrashPoint(CrashPoint::kWorkerReaped);
  if (status) log(LogLevel::kInfo, describe(worker) + " " + status->describe());
  if (!over_ && worker.wasIntroduced()) {
    const ExitStatus how = status.value_or(ExitStatus{SIGKILL, 0});
    connection_.send(ipc::WorkerDied{worker.epoch().value, how.signal, how.exitCode});
  }
  // Not now: the worker is calling us.
  const auto found = workers_.find(worker.epoch());
  boost::asio::post(services_.io, [leaving = std::shared_ptr<Worker>(std::move(found->second))] {});
  workers_.erase(found);
  events_.reaped();
}

void Client::segmentWanted(Worker& worker, uint64_t bytes) {
  const uint64_t limit = services_.options.outputArenaLimit;
  uint64_t size = bytes <= limit ? sizeClass(bytes) : bytes;
  std::optional<uint32_t> number = worker.reserveSegment(size, limit);
  if (!number && bytes <= limit) {
    size = ipc::roundUpToPages(bytes);
    number = worker.reserveSegment(size, limit);
  }
  if (!number) {
    worker.send(ipc::RefuseOutputSegment{
        id_.value, "the worker's output arena holds " + std::to_string(worker.outputBytes()) +
                       " bytes, another " + std::to_string(bytes) + " would pass the limit of " +
                       std::to_string(limit) + " bytes (ISOPOOL_OUTPUT_ARENA_LIMIT)"});
    return;
  }
  services_.stock.makeSegment(
      size, [self = std::weak_ptr(self_), epoch = worker.epoch(), number = *number, size](
                ipc::Fd segment, const std::string& failure) {
        if (const auto alive = self.lock()) {
          (*alive)->grantSegment(epoch, number, size, std::move(segment), failure);
        }
      });
}

void Client::grantSegment(Epoch epoch, uint32_t number, uint64_t bytes, ipc::Fd segment,
                          const std::string& failure) {
  Worker* worker = find(epoch);
  if (worker == nullptr || worker->stage() == Worker::Stage::kDying) return;
  if (!segment.valid()) {
    worker->releaseSegment(bytes);
    worker->send(ipc::RefuseOutputSegment{id_.value, failure});
    return;
  }
  // The client first: it must know the segment before a result lies in it.
  connection_.send(ipc::GrantOutputSegment{epoch.value, number, bytes}, {segment.get()});
  worker->send(ipc::AddOutputSegment{id_.value, number, bytes}, {segment.get()});
}

Worker* Client::find(Epoch epoch) {
  const auto found = workers_.find(epoch);
  return found != workers_.end() ? found->second.get() : nullptr;
}

std::string Client::describe(const Worker& worker) const {
  std::string text = "worker " + std::to_string(worker.epoch().value);
  if (worker.pid() != 0) text += " (pid " + std::to_string(worker.pid()) + ")";
  const std::optional<Roster::Seat> seat = roster_.seatOf(worker.epoch());
  if (!seat) return text;
  if (!seat->slot) return text + ", a spare";
  return text + ", slot " + std::to_string(seat->slot->index) + " of pool " +
         std::to_string(seat->slot->pool.value);
}

// ---- what its roster decides -----------------------------------------------------------------

Epoch Client::startWorker(bool) {
  const Epoch epoch = services_.nextEpoch();
  Worker::Events events;
  events.ready = [this, epoch] { workerReady(*find(epoch)); };
  events.attached = [this, epoch] { workerAttached(*find(epoch)); };
  events.segmentWanted = [this, epoch](uint64_t bytes) { segmentWanted(*find(epoch), bytes); };
  events.lost = [this, epoch](const std::string& reason) { workerLost(*find(epoch), reason); };
  events.notMade = [this, epoch] { roster_.workerNotMade(epoch); };
  events.gone = [this, epoch](const std::optional<ExitStatus>& status) {
    workerGone(*find(epoch), status);
  };
  try {
    workers_[epoch] = std::make_unique<Worker>(services_, epoch, std::move(events));
  } catch (const ipc::SystemCallError& error) {
    workers_.erase(epoch);
    log(LogLevel::kError, std::string("a worker could not be asked for: ") + error.what());
    boost::asio::post(services_.io, [self = std::weak_ptr(self_), epoch] {
      const auto alive = self.lock();
      if (alive == nullptr || (*alive)->over_) return;
      (*alive)->roster_.workerLost(epoch, Death::kBarren, now());
      (*alive)->scheduleTick();
    });
  }
  return epoch;
}

void Client::retireWorker(Epoch epoch) {
  if (Worker* worker = find(epoch)) worker->kill();
}

void Client::assignWorker(const Slot& slot, Epoch epoch) {
  connection_.send(ipc::AssignWorker{slot.pool.value, slot.index, epoch.value});
  ipc::reachCrashPoint(CrashPoint::kSpareAssigned);
}

void Client::slotQuarantined(const Quarantine& quarantine) {
  const std::string text =
      "slot " + std::to_string(quarantine.slot.index) + " stays empty for " +
      std::to_string(quarantine.duration.count()) + " ms: its last " +
      std::to_string(quarantine.deaths) +
      " workers died before they completed a call (ISOPOOL_RESTART_LIMIT, ISOPOOL_QUARANTINE)";
  log(LogLevel::kWarning, text);
  connection_.send(ipc::SlotQuarantined{quarantine.slot.pool.value, quarantine.slot.index,
                                        quarantine.deaths,
                                        static_cast<uint32_t>(quarantine.duration.count()), text});
}

void Client::spareQuarantined(uint32_t deaths, Milliseconds duration) {
  log(LogLevel::kWarning, "no spare worker for " + std::to_string(duration.count()) +
                              " ms: the last " + std::to_string(deaths) +
                              " died before they served (ISOPOOL_RESTART_LIMIT)");
}

void Client::scheduleTick() {
  const std::optional<TimePoint> next = roster_.nextTick();
  if (!next) return tick_.cancel();
  tick_.setAt(*next, [this] {
    roster_.tick(now());
    scheduleTick();
  });
}

}  // namespace isopool::supervisor

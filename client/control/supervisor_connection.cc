// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/supervisor_connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "base/await_readable.h"
#include "base/blocked_signals.h"
#include "base/pidfd.h"
#include "base/procfs.h"
#include "base/standard_streams.h"
#include "base/system_call.h"
#include "base/without_cancellation.h"
#include "client/control/greeting.h"
#include "client/program/process_fork.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

using State = ipc::SendQueue::State;

namespace {

using std::chrono::milliseconds;

// The supervisor kills its processes and exits in milliseconds; the workers of a shared one return
// what was lent to them between two calls.
constexpr milliseconds kEndPatience(1000);

// Between two checks of work that no thread waits for.
constexpr milliseconds kBetweenLooks(100);

// Between two reports of the calls to a shared supervisor, see ipc::ReportCalls.
constexpr milliseconds kBetweenReports(2000);

constexpr const char* kUnread =
    "the supervisor does not read its messages, and the queue of messages to it is full";
constexpr const char* kOutOfFiles =
    "a message to the supervisor can't be queued: this program has reached its limit of open "
    "files (ulimit -n)";
constexpr const char* kDescriptorsAwaited =
    "messages of the supervisor are not read, and dead workers are not replaced, until this "
    "program closes files: it has reached its limit of open files (ulimit -n)";
// Between two checks whether the process has free descriptors for the supervisor's messages again.
constexpr milliseconds kOutOfDescriptors(100);
constexpr const char* kSupervisorGone = "the supervisor is gone, and its workers with it";

uint64_t nextNumber() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// For poll(): -1 for the end of time.
int timeoutUntil(Clock::time_point time) {
  if (time == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(time - Clock::now());
  return static_cast<int>(std::max(left, milliseconds(0)).count());
}

bool waitUntilGone(const base::Fd& pidfd, milliseconds patience) {
  return pidfd.valid() && base::awaitReadable(pidfd.get(), patience);
}

}  // namespace

std::shared_ptr<SupervisorConnection> SupervisorConnection::open(
    const PoolSettings& settings, SpareWorker spare, SupervisorProcess process,
    const std::string& place, EventLog log, const std::stop_token& stop) {
  std::shared_ptr<SupervisorConnection> connection(
      new SupervisorConnection(settings, spare, std::move(process), std::move(log)), End());
  connection->begin(place, stop);
  return connection;
}

void SupervisorConnection::begin(const std::string& place, const std::stop_token& stop) {
  Greeting greeting;
  try {
    greeting = greetSupervisor(socket_, *writer_, place, settings_, stop);
  } catch (const SupervisorLost& error) {
    // No pool is there yet that could log the supervisor's lines.
    std::string lines;
    log_.read([&](const SupervisorLog::Line& line) { lines += "\n  " + line.text; });
    if (lines.empty()) throw;
    throw SupervisorLost(std::string(error.what()) + ":" + lines);
  }
  welcome_ = std::move(greeting.welcome);
  workers_.greeted(welcome_);
  supervisor_ = std::move(greeting.supervisor);
  InputArena::instance().addAudience(*this);
  hearsOfInputs_ = true;
  const base::BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

SupervisorConnection::SupervisorConnection(const PoolSettings& settings, SpareWorker spare,
                                           SupervisorProcess process, EventLog log)
    : number_(nextNumber()),
      generation_(client::forkGeneration()),
      settings_(settings),
      lifeline_(std::move(process.lifeline)),
      guardianGroup_(process.guardianGroup),
      log_(std::move(process.log)),
      socket_(std::move(process.control)),
      wake_(base::awayFromStandardStreams(
          base::Fd(base::checkSystemCall(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")))),
      writer_(std::make_shared<ControlWriter>(socket_, wake_.get())),
      watch_(std::make_shared<UnawaitedWatch>(writer_)),
      unread_(number_),
      packages_(writer_),
      workers_({number_, settings_.pythonPaths, spare, settings_.cleanupTimeout, std::move(log)},
               writer_, watch_) {}

void SupervisorConnection::End::operator()(SupervisorConnection* connection) const {
  const base::WithoutCancellation complete;
  if (connection->generation_ == client::forkGeneration()) {
    if (connection->thread_.get_id() != std::this_thread::get_id()) {
      delete connection;
      return;
    }
    // A logger of the program has ended the manager. The control thread can't wait for itself.
    try {
      std::thread([connection] { delete connection; }).detach();
    } catch (const std::system_error&) {
      // Without a thread the connection stays until the process ends.
    }
  } else {
    // Closes this process's copies of the descriptors; the parent's stay open.
    connection->socket_.close();
    connection->lifeline_.close();
    connection->wake_.close();
    connection->supervisor_.close();
    connection->log_ = SupervisorLog(base::Fd());
  }
}

SupervisorConnection::~SupervisorConnection() {
  // If memory was short, there may be no arena, and none can be made here.
  if (hearsOfInputs_) InputArena::instance().removeAudience(*this);
  // A shared worker lives on, and returns what was lent to it between two calls, so that a long
  // call of another program delays it. After kEndPatience this thread stops waiting.
  if (shared()) workers_.awaitLoansBack(kEndPatience);
  const uint64_t one = 1;
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_release);
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  writer_->close();
  // Closing alone would not end the connection while a forked child has a copy of the socket.
  ::shutdown(socket_.fd(), SHUT_RDWR);
  socket_.close();
  if (!shared()) {
    waitUntilGone(supervisor_, kEndPatience);
    lifeline_.close();  // the kernel then kills a supervisor that is stopped
    reapGuardian(guardianGroup_);
    readLog();
  }
  try {
    lose("its manager is gone");
  } catch (const std::bad_alloc&) {
    // No thread makes calls any more; what was lent comes back when each channel is destroyed.
  }
}

void SupervisorConnection::run() {
  std::array<pollfd, 3> watched{pollfd{socket_.fd(), POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0},
                                pollfd{log_.fd(), POLLIN, 0}};
  State queue = State::kEmpty;
  std::optional<Clock::time_point> look;  // when to check work that no thread waits for
  std::optional<Clock::time_point> trim;  // when to trim the input arena
  Clock::time_point report = shared() ? Clock::now() + kBetweenReports : Clock::time_point::max();
  bool lacksDescriptors = false;
  for (;;) {
    // Not immediately: most of this work takes microseconds.
    if (!look && watch_->on()) look = Clock::now() + kBetweenLooks;
    if (!trim && trimIsDue_.exchange(false)) trim = Clock::now() + InputArena::kIdleTime;
    Clock::time_point next = report;
    if (look) next = std::min(next, *look);
    if (trim) next = std::min(next, *trim);
    if (lacksDescriptors) next = std::min(next, Clock::now() + kOutOfDescriptors);
    const int timeout = queue == State::kCrowded
                            ? static_cast<int>(ipc::SendQueue::kCrowdedRetry.count())
                            : timeoutUntil(next);
    // Without free descriptors only the end of the connection matters, which poll() always reports.
    watched[0].events = lacksDescriptors ? 0 : POLLIN;
    if (queue == State::kFull) watched[0].events |= POLLOUT;
    if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) return;
    uint64_t woken = 0;
    if ((watched[1].revents & POLLIN) != 0) (void)!::read(wake_.get(), &woken, sizeof woken);
    if (stopping_.load(std::memory_order_acquire)) return;
    if (watched[2].revents != 0) {
      readLog();
      watched[2].fd = log_.fd();
    }
    if (look && Clock::now() >= *look) {
      look.reset();
      workers_.lookAtUnawaitedWork();
    }
    if (trim && Clock::now() >= *trim) {
      const auto again = InputArena::instance().trimIdle();
      trim.reset();
      if (again) trim = Clock::now() + *again;
    }
    if (report <= Clock::now()) {
      report = Clock::now() + kBetweenReports;
      reportCalls();
    }
    queue = writer_->flush();
    if (queue == State::kOverflow) return loseOnceThereIsMemory(kUnread, remedy());
    if (queue == State::kOutOfFiles) return loseOnceThereIsMemory(kOutOfFiles, remedy());
    if (!lacksDescriptors && (watched[0].revents & ~POLLOUT) == 0) continue;
    try {
      if (!socket_.descriptorsFit()) {
        if ((watched[0].revents & (POLLHUP | POLLERR)) != 0) return lose(goneText());
        if (!std::exchange(lacksDescriptors, true)) {
          unread_.set(true);
          workers_.logToPools(LogLevel::kWarning, kDescriptorsAwaited);
        }
        continue;
      }
      const auto received = socket_.receive();
      while (auto frame = socket_.next()) handle(*frame);
      // After the messages were handled: until then what they announce is not known.
      if (std::exchange(lacksDescriptors, false)) unread_.set(false);
      if (received == ipc::ReceiveResult::kPeerGone) {
        return lose(goneText());
      }
    } catch (const base::SystemCallError& error) {
      return loseOnceThereIsMemory("this program can't process a message of its supervisor: ",
                                   error.what());
    } catch (const std::bad_alloc& error) {
      return loseOnceThereIsMemory("no memory for a message of the supervisor: ", error.what());
    } catch (const std::exception& error) {
      return loseOnceThereIsMemory("the supervisor sent an invalid message: ", error.what());
    }
  }
}

void SupervisorConnection::readLog() {
  try {
    log_.read([this](const SupervisorLog::Line& line) { workers_.logLine(line); });
  } catch (const std::bad_alloc&) {
    // There is no memory to report it either.
  }
}

void SupervisorConnection::reportCalls() {
  try {
    workers_.reportCalls();
  } catch (const std::bad_alloc&) {
    // The next report has these calls, too.
  }
}

// Calls lose() until its allocations succeed or the connection is to end.
void SupervisorConnection::loseOnceThereIsMemory(const char* what, const char* why) {
  constexpr int kPause = 10;  // ms
  do {
    try {
      return lose(std::string(what) + why);
    } catch (const std::bad_alloc&) {
    }
    ::poll(nullptr, 0, kPause);
  } while (!stopping_.load(std::memory_order_acquire));
}

void SupervisorConnection::handle(ipc::Frame& frame) {
  switch (frame.type) {
    case ipc::MessageType::kFailure:
      return lose(ipc::decodeMessage<ipc::Failure>(frame).text);
    case ipc::MessageType::kStatistics:
      return;
    case ipc::MessageType::kInputSegmentReleased:
      return InputArena::instance().segmentReleased(
          *this, base::SegmentId(ipc::decodeMessage<ipc::InputSegmentReleased>(frame).segment));
    case ipc::MessageType::kPackageHeld:
      return packages_.answered(ipc::decodeMessage<ipc::PackageHeld>(frame), frame);
    default:
      return workers_.handle(frame);
  }
}

const char* SupervisorConnection::remedy() const {
  return shared() && settings_.reconnect.count() != 0
             ? "; the manager attaches again when a supervisor listens at its address"
             : ": make a new manager";
}

std::string SupervisorConnection::goneText() const {
  return std::string(kSupervisorGone) + remedy();
}

void SupervisorConnection::lose(const std::string& reason) {
  packages_.supervisorLost(reason);
  workers_.lose(reason);
}

void SupervisorConnection::checkSupervisorLives(bool started) const {
  const base::WithoutCancellation complete;
  // A supervisor that ends by itself hangs up before its workers end. The control thread may have
  // its last message still to read.
  pollfd connection{socket_.fd(), POLLRDHUP, 0};
  if (::poll(&connection, 1, 0) > 0) throw SupervisorLost(goneText(), started);
  // One that dies can't: the kernel kills the workers while it exits, before its pidfd shows that.
  // The order matters: the process number can be another process's only after the supervisor was
  // reaped, and then the pidfd shows its end. A process that this /proc does not show has no flags.
  constexpr unsigned kExiting = 0x4;  // PF_EXITING
  const pid_t number = base::processOf(supervisor_).value_or(0);
  const bool exiting = number != 0 && (base::statusOf(number).flags & kExiting) != 0;
  if (exiting || waitUntilGone(supervisor_, milliseconds(0))) {
    throw SupervisorLost(goneText(), started);
  }
}

// Two that live have the same number only if they are in different PID namespaces.
bool SupervisorConnection::sameSupervisorAs(const SupervisorConnection& former) const {
  return welcome_.processId == former.welcome_.processId &&
         !waitUntilGone(former.supervisor_, milliseconds(0));
}

void SupervisorConnection::segmentAdded(base::SegmentId id, const base::Fd& object, size_t bytes) {
  writer_->send(ipc::DeclareInputSegment{id.value, bytes}, {object.get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kInputSegmentDeclared);
}

void SupervisorConnection::segmentRetired(base::SegmentId id) {
  if (welcome_.protocolVersion < ipc::kRetiresSegments) return;
  writer_->send(ipc::RetireInputSegment{id.value});
  ipc::reachCrashPoint(ipc::CrashPoint::kInputSegmentRetired);
}

void SupervisorConnection::trimIsWanted() {
  if (welcome_.protocolVersion >= ipc::kRetiresSegments) writer_->send(ipc::TrimMemory{});
}

void SupervisorConnection::trimIsDue() noexcept {
  const base::WithoutCancellation complete;
  trimIsDue_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

}  // namespace isopool::client

// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/greeting.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/running_time.h"
#include "base/system_call.h"
#include "client/control/supervisor_process.h"
#include "client/transport/deadline.h"
#include "ipc/channel/layout.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

using std::chrono::milliseconds;
using State = ipc::SendQueue::State;

// Python and torch start in about a second; a cold disk or a loaded machine takes longer.
constexpr std::chrono::seconds kStartPatience(180);
// Between two checks whether the greeting is to end.
constexpr milliseconds kBetweenLooks(100);
constexpr milliseconds kLongestWait(1000);

// Throws SupervisorLost if the supervisor refuses this process or has another protocol.
Greeting greetingIn(ipc::Frame& frame, const std::string& place) {
  if (frame.type == ipc::MessageType::kFailure) {
    throw SupervisorLost(ipc::decodeMessage<ipc::Failure>(frame).text);
  }
  Greeting greeting{.welcome = ipc::decodeMessage<ipc::Welcome>(frame), .supervisor = {}};
  const uint32_t version = greeting.welcome.protocolVersion;
  if (version < ipc::kOldestProtocolVersion || version > ipc::kProtocolVersion) {
    throw SupervisorLost(
        "the supervisor " + place + " uses protocol version " + std::to_string(version) +
        ", this library " + std::to_string(ipc::kOldestProtocolVersion) + " to " +
        std::to_string(ipc::kProtocolVersion) + ": they are from different releases of isopool");
  }
  if (!frame.descriptors.empty()) greeting.supervisor = std::move(frame.descriptors.front());
  ipc::reachCrashPoint(ipc::CrashPoint::kWelcomeReceived);
  return greeting;
}

}  // namespace

Greeting greetSupervisor(ipc::ControlSocket& socket, ControlWriter& writer,
                         const std::string& place, const PoolSettings& settings,
                         const std::stop_token& stop) {
  const base::Fd self(base::checkSystemCall(
      static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)), "pidfd_open", ::getpid()));
  ipc::Hello hello;
  hello.layoutVersion = ipc::kLayoutVersion;
  hello.processId = ::getpid();
  hello.program = settings.programName;
  writer.send(hello, {self.get()});
  ipc::reachCrashPoint(ipc::CrashPoint::kHelloSent);
  base::RunningTime waited(kLongestWait);
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(kStartPatience - waited.look(Clock::now()));
    if (stop.stop_requested()) throw SupervisorLost("the manager has ended");
    // A message wakes the thread at once, a request to stop does not.
    const milliseconds longest = stop.stop_possible() ? kBetweenLooks : kLongestWait;
    const State state = writer.flush();
    if ((state == State::kFull || state == State::kCrowded) && left.count() > 0) {
      socket.waitReadable(ipc::SendQueue::kCrowdedRetry);
    } else if (settings.noKill) {
      socket.waitReadable(longest);
    } else if (state == State::kCrowded) {
      throw SupervisorLost("the supervisor " + place +
                           " can't be greeted: too many descriptors of this user are in flight "
                           "between processes (ETOOMANYREFS)");
    } else if (left.count() > 0) {
      if (!socket.waitReadable(std::min(left, longest))) continue;
    } else {
      throw SupervisorLost("the supervisor did not become ready within " +
                           std::to_string(kStartPatience.count()) + " seconds");
    }
    try {
      const auto received = socket.receive();
      if (auto frame = socket.next()) return greetingIn(*frame, place);
      if (received == ipc::ReceiveResult::kPeerGone) {
        const std::string obstacle = obstacleToStarts();
        throw SupervisorLost("the supervisor " + place + " ended before it was ready: " +
                             (obstacle.empty() ? "its error output shows the reason" : obstacle));
      }
    } catch (const ipc::ProtocolError& error) {
      throw SupervisorLost("the supervisor " + place +
                           " sent an invalid greeting: " + error.what());
    }
  }
}

}  // namespace isopool::client

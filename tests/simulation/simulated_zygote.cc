// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/simulated_zygote.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "ipc/control/zygote_messages.h"

namespace isopool::simulation {

namespace {

constexpr std::chrono::milliseconds kAtOnce(0);
constexpr Microseconds kTooLate(130'000'000);

}  // namespace

SimulatedZygote::SimulatedZygote(const SimulatedWorker::Places& places, pid_t pid, base::Fd control,
                                 base::Fd lifeline, bool& everReady)
    : places_(places),
      pid_(pid),
      control_(std::move(control)),
      lifeline_(std::move(lifeline)),
      everReady_(everReady) {}

void SimulatedZygote::appendDescriptors(std::vector<int>& descriptors) const {
  if (dead_) return;
  descriptors.push_back(lifeline_.get());
  if (saidReady_) descriptors.push_back(control_.fd());
}

void SimulatedZygote::act() {
  World& world = places_.world;
  if (!places_.processes.alive(pid_)) return;
  pollfd end{lifeline_.get(), POLLIN, 0};
  if (::poll(&end, 1, 0) == 1) return places_.processes.end(pid_, {.signal = SIGKILL});
  const Misfortunes& misfortunes = places_.misfortunes;
  if (!saidReady_) {
    const bool fails = everReady_ ? world.misfortune(misfortunes.zygoteDies / 4)
                                  : world.misfortune(misfortunes.neverAZygote);
    if (fails) {
      switch (world.chance.below(4)) {
        case 0:
          control_.send(ipc::ZygoteFailed{"No module named 'torch'"}, {}, kAtOnce);
          return places_.processes.end(pid_, {.exitCode = 1});
        case 1:
          return places_.processes.end(pid_, {.exitCode = 7});
        case 2: {
          [[maybe_unused]] const ssize_t written = ::write(control_.fd(), "no frame, no frame", 18);
          return;
        }
        default:
          return wakeAt(world.now() + kTooLate);
      }
    }
    saidReady_ = everReady_ = true;
    control_.send(
        ipc::ZygoteReady{
            .pythonVersion = "3.11.2", .torchVersion = "none", .missingProtections = {}},
        {}, kAtOnce);
    return wakeAt(world.now());
  }
  if (world.misfortune(misfortunes.zygoteDies)) {
    return places_.processes.end(pid_, {.signal = SIGKILL});
  }
  if (!unannounced_.empty()) {
    const Forked forked = unannounced_.front();
    unannounced_.pop_front();
    control_.send(ipc::WorkerForked{forked.epoch, forked.worker}, {}, kAtOnce);
    places_.processes.announced(forked.worker);
    places_.lives.begun(forked.epoch);
  } else if (!requests_.empty()) {
    ipc::Frame request = std::move(requests_.front());
    requests_.pop_front();
    fork(request);
  } else {
    const bool gone = control_.receive() == ipc::ReceiveResult::kPeerGone;
    while (std::optional<ipc::Frame> frame = control_.next())
      requests_.push_back(std::move(*frame));
    if (gone) return places_.processes.end(pid_, {.exitCode = 0});
    if (requests_.empty()) return;
  }
  wakeAt(world.now() + world.latency());
}

void SimulatedZygote::fork(ipc::Frame& frame) {
  const auto request = ipc::decodeMessage<ipc::ForkWorker>(frame);
  if (places_.world.misfortune(places_.misfortunes.zygoteRefuses)) {
    control_.send(ipc::ForkFailed{request.epoch, "more than one thread"}, {}, kAtOnce);
    places_.lives.begun(request.epoch);
    return;
  }
  const pid_t worker = places_.processes.start(
      [&](pid_t pid) {
        return std::make_unique<SimulatedWorker>(places_, pid, request.epoch,
                                                 std::move(frame.descriptors));
      },
      /*child=*/true);
  unannounced_.push_back({request.epoch, worker});
}

void SimulatedZygote::die() {
  dead_ = true;
  requests_.clear();
  control_.close();
  lifeline_.close();
}

}  // namespace isopool::simulation

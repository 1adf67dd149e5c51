// SPDX-License-Identifier: BSD-3-Clause
#include "cli/actions.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/terminal_text.h"

namespace isopool::cli {

namespace {

constexpr int kLook = 50;  // ms
// A supervisor that starts at an address that none serves is reached sooner.
constexpr std::chrono::seconds kUnreached(3);

std::optional<uint64_t> numberIn(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

ipc::RequestAction requestOf(ipc::Action action, uint64_t target, std::chrono::milliseconds time) {
  ipc::RequestAction request;
  request.action = static_cast<uint32_t>(action);
  request.target = target;
  request.milliseconds = static_cast<uint64_t>(time.count());
  return request;
}

std::optional<uint64_t> clientNumberIn(std::string_view text) {
  if (text.starts_with('#')) text.remove_prefix(1);
  const std::optional<uint64_t> number = numberIn(text);
  return number != 0 ? number : std::nullopt;
}

std::optional<ipc::RequestAction> recyclingOf(std::string_view text) {
  const size_t slash = text.rfind('/');
  const bool isSlot = slash != std::string_view::npos && slash > 0;
  const auto number = numberIn(isSlot ? text.substr(slash + 1) : text);
  if (!number) return std::nullopt;
  auto request = requestOf(isSlot ? ipc::Action::kRecycleSlot : ipc::Action::kRecycleWorker);
  request.target = *number;
  if (isSlot) request.group = text.substr(0, slash);
  return request;
}

ipc::RequestAction recyclingOfAll() { return requestOf(ipc::Action::kRecycleAll); }

std::set<uint64_t> workersMeant(const ipc::RequestAction& request, const ipc::Report& report) {
  std::set<uint64_t> epochs;
  for (const ipc::ReportedWorker& worker : report.workers) {
    if (worker.state != "serving") continue;
    const bool isPid = worker.processId > 0 && uint64_t(worker.processId) == request.target;
    const bool isSlot = worker.group == request.group && worker.slot >= 0 &&
                        uint64_t(worker.slot) == request.target;
    switch (static_cast<ipc::Action>(request.action)) {
      case ipc::Action::kRecycleWorker:
        if (isPid) epochs.insert(worker.epoch);
        break;
      case ipc::Action::kRecycleSlot:
        if (isSlot) epochs.insert(worker.epoch);
        break;
      case ipc::Action::kRecycleAll:
        epochs.insert(worker.epoch);
        break;
      default:  // is not about workers
        break;
    }
  }
  return epochs;
}

size_t awaitEndOf(const std::set<uint64_t>& epochs, SupervisorLink& link,
                  std::chrono::milliseconds patience) {
  const auto deadline = SupervisorLink::Clock::now() + patience;
  for (;;) {
    const ipc::Report report = link.ask();
    const auto left = static_cast<size_t>(std::count_if(
        report.workers.begin(), report.workers.end(),
        [&](const ipc::ReportedWorker& each) { return epochs.contains(each.epoch); }));
    if (left == 0 || SupervisorLink::Clock::now() >= deadline) return left;
    ::poll(nullptr, 0, kLook);
  }
}

bool awaitEndOf(SupervisorLink& link, std::chrono::milliseconds patience) {
  const auto deadline = SupervisorLink::Clock::now() + patience;
  try {
    while (SupervisorLink::Clock::now() < deadline) {
      link.receive();
      pollfd ended{link.fd(), POLLIN, 0};
      ::poll(&ended, 1, kLook);
    }
    return false;
  } catch (const SupervisorUnreachable&) {
    return true;
  }
}

bool hasCrashed(SupervisorLink& link) {
  try {
    link.receive();
  } catch (const ConnectionLost&) {
    return true;
  } catch (const SupervisorUnreachable&) {
    return false;
  }
  return false;
}

int32_t awaitSuccessor(const std::string& address, int32_t former,
                       std::chrono::milliseconds patience) {
  const auto deadline = SupervisorLink::Clock::now() + patience;
  auto reached = SupervisorLink::Clock::now();
  while (SupervisorLink::Clock::now() < deadline) {
    std::optional<ipc::Report> report;
    try {
      report = SupervisorLink(address).ask();
      reached = SupervisorLink::Clock::now();
    } catch (const SupervisorUnreachable&) {
      // The former one has accepted the connection and ended. The next one has the same socket, so
      // that connections wait there.
      if (SupervisorLink::Clock::now() - reached > kUnreached) {
        throw SupervisorUnreachable(
            "the restart has ended without another supervisor: none serves at " +
            base::terminalText(address) + "; the log has the reason");
      }
    }
    if (report && report->processId != former) return report->processId;
    if (report && report->state == "serving" && report->successor != "starting") {
      throw SupervisorUnreachable("the restart failed, the supervisor goes on: " +
                                  base::terminalText(report->successor));
    }
    ::poll(nullptr, 0, kLook);
  }
  throw SupervisorUnreachable(
      "no other supervisor serves yet; isopool status shows whether it starts");
}

}  // namespace isopool::cli

// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log/log.h"
#include "base/system_call.h"

namespace isopool::supervisor {

namespace {

constexpr int kFirstActivated = 3;

std::optional<std::string> takeVariable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  std::string value = text;
  ::unsetenv(name);
  return value;
}

std::optional<uint64_t> numberIn(const std::optional<std::string>& text) {
  uint64_t number = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

std::optional<std::chrono::microseconds> halfOf(const std::optional<uint64_t>& period) {
  if (!period || *period < 2) return std::nullopt;
  return std::chrono::microseconds(static_cast<int64_t>(*period / 2));
}

bool isUs(const std::optional<uint64_t>& pid) {
  return pid && *pid == static_cast<uint64_t>(::getpid());
}

// A status must be one line: each line of a notification is an assignment of its own.
std::string oneLine(std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

int socketOption(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

}  // namespace

ServiceManager ServiceManager::fromEnvironment() {
  ServiceManager manager;
  const auto address = takeVariable("NOTIFY_SOCKET");
  const auto watchdogPeriod = numberIn(takeVariable("WATCHDOG_USEC"));
  const auto watchdogPid = takeVariable("WATCHDOG_PID");
  if (!address || address->empty()) return manager;
  const bool isName = address->front() == '/' || address->front() == '@';
  const auto unixAddress = base::UnixAddress::ofPathOrAbstractName(*address);
  if (!isName || !unixAddress) {
    base::log(base::LogLevel::kWarning,
              "NOTIFY_SOCKET=" + *address +
                  " is neither a path nor an abstract socket: the service manager is not notified "
                  "when isopoold is ready");
    return manager;
  }
  manager.socket_ = base::Fd(base::checkSystemCall(
      ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket"));
  manager.address_ = unixAddress;
  if (!watchdogPid || isUs(numberIn(watchdogPid))) manager.period_ = halfOf(watchdogPeriod);
  return manager;
}

ServiceManager ServiceManager::behind(base::Fd relay) {
  ServiceManager manager;
  const auto watchdogPeriod = numberIn(takeVariable("WATCHDOG_USEC"));
  if (!relay.valid()) return manager;
  manager.socket_ = std::move(relay);
  manager.period_ = halfOf(watchdogPeriod);
  return manager;
}

std::optional<NotificationRelay> ServiceManager::throughRelay() {
  if (!listening() || !address_) return std::nullopt;
  int ends[2];
  base::checkSystemCall(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
                        "socketpair");
  base::Fd output(ends[0]);
  NotificationRelay relay(std::exchange(socket_, std::move(output)), *address_, base::Fd(ends[1]));
  address_.reset();
  return relay;
}

void ServiceManager::ready(std::string_view status) { tell("READY=1\nSTATUS=" + oneLine(status)); }

void ServiceManager::reloading() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t microseconds = int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  tell("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(microseconds));
}

void ServiceManager::stopping(std::string_view status) {
  tell("STOPPING=1\nSTATUS=" + oneLine(status));
}

void ServiceManager::status(std::string_view text) { send("STATUS=" + oneLine(text)); }

void ServiceManager::alive() {
  if (!unsent_.empty() && send(unsent_)) unsent_.clear();
  send("WATCHDOG=1");
}

void ServiceManager::tell(std::string state) {
  // Replaces an older state that is not sent yet: it is out of date.
  unsent_.clear();
  if (!send(state)) unsent_ = std::move(state);
}

bool ServiceManager::send(const std::string& datagram) const {
  if (!listening()) return true;
  return ::sendto(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                  address_ ? address_->get() : nullptr, address_ ? address_->bytes() : 0) >= 0;
}

base::Fd takeActivatedSocket() {
  const auto pid = takeVariable("LISTEN_PID");
  const auto count = takeVariable("LISTEN_FDS");
  const auto names = takeVariable("LISTEN_FDNAMES");
  if (!isUs(numberIn(pid)) || !count) return {};
  if (numberIn(count) != 1) {
    throw ActivationError("the service manager handed over " + *count + " sockets (" +
                          names.value_or("without names") +
                          "), but isopoold serves one: give its socket unit one ListenStream");
  }
  const std::string name = names && !names->empty() ? *names : "the socket";
  const bool listens = socketOption(kFirstActivated, SO_ACCEPTCONN) == 1 &&
                       socketOption(kFirstActivated, SO_DOMAIN) == AF_UNIX &&
                       socketOption(kFirstActivated, SO_TYPE) == SOCK_STREAM;
  if (!listens) {
    throw ActivationError(name +
                          " that the service manager handed over is not a listening Unix stream "
                          "socket: its socket unit needs ListenStream=/PATH and Accept=no");
  }
  base::checkSystemCall(::fcntl(kFirstActivated, F_SETFD, FD_CLOEXEC), "fcntl(F_SETFD)",
                        kFirstActivated);
  return base::Fd(kFirstActivated);
}

std::string pathOfSocket(const base::Fd& socket) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  // Empty for a socket without a name or with an abstract one.
  return std::string(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path));
}

}  // namespace isopool::supervisor

// SPDX-License-Identifier: BSD-3-Clause
#include "cli/supervisor_link.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system_call.h"
#include "base/terminal_text.h"
#include "base/unix_address.h"
#include "cli/wording.h"
#include "ipc/control/client_messages.h"

namespace isopool::cli {

namespace {

using std::chrono::milliseconds;

constexpr uint32_t kFirstProtocolWithActions = 4;

[[noreturn]] void failToConnect(const std::string& address, int error) {
  std::string text = "the supervisor at " + base::terminalText(address) + " can't be reached: ";
  const std::string kind = error == ECONNREFUSED ? base::otherFileAt(address) : "";
  if (!kind.empty()) {
    throw SupervisorUnreachable(text + "it is " + kind +
                                ", not a socket; name the socket of a supervisor with --socket or "
                                "ISOPOOL_SOCKET");
  }
  switch (error) {
    case ENOENT:
      text +=
          "the socket does not exist; name another with --socket or ISOPOOL_SOCKET, or start a "
          "supervisor: "
          "isopoold --listen " +
          base::terminalText(address);
      break;
    case ECONNREFUSED:
      text +=
          "no process listens there, because its supervisor has ended or is ending; start a "
          "supervisor: isopoold --listen " +
          base::terminalText(address);
      break;
    case EACCES:
    case EPERM:
      text +=
          "permission denied; its own user, root and the group that socket_group names may "
          "connect";
      break;
    case EAGAIN:
      text += "it accepts no connections; it is stopped or hangs";
      break;
    case ENAMETOOLONG:
      text += "the path of a socket must have 1 to " +
              std::to_string(base::UnixAddress::kMostBytes) + " bytes";
      break;
    default:
      text += std::strerror(error);
  }
  throw SupervisorUnreachable(text);
}

base::Fd connectTo(const std::string& address) {
  const auto name = base::UnixAddress::ofPath(address);
  if (!name) failToConnect(address, ENAMETOOLONG);
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) failToConnect(address, errno);
  // The kernel queues connections to a stopped supervisor; when the queue is full connect() waits.
  timeval patience{};
  patience.tv_sec =
      std::chrono::duration_cast<std::chrono::seconds>(SupervisorLink::kPatience).count();
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(socket.get(), name->get(), name->bytes()) != 0) failToConnect(address, errno);
  return socket;
}

}  // namespace

SupervisorLink::SupervisorLink(const std::string& address)
    : address_(address), socket_(connectTo(address)) {
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  base::checkSystemCall(pidfd.get(), "pidfd_open", ::getpid());
  ipc::Hello hello;
  hello.processId = ::getpid();
  hello.role = static_cast<uint32_t>(ipc::ClientRole::kOperator);
  hello.program = "isopool";
  // A supervisor that refuses this process closes at once; receive() still reads the reason.
  socket_.send(hello, {pidfd.get()}, kPatience);
}

ipc::Report SupervisorLink::ask() {
  request();
  for (;;) {
    if (std::optional<ipc::Report> report = receive()) return *report;
    awaitAnswer();
  }
}

ipc::SettingsInForce SupervisorLink::askSettings() {
  deadline_ = Clock::now() + kPatience;
  socket_.send(ipc::RequestSettings{++token_}, {}, kPatience);
  for (;;) {
    if (auto settings = receiveAnswer<ipc::SettingsInForce>()) return *settings;
    awaitAnswer();
  }
}

// Waits for Welcome first: a supervisor that does not know the request would end the connection as
// if this process had broken the protocol.
ipc::ActionDone SupervisorLink::act(ipc::RequestAction request) {
  deadline_ = Clock::now() + kPatience;
  while (protocol_ == 0) {
    receiveAnswer<ipc::ActionDone>();
    if (protocol_ == 0) awaitAnswer();
  }
  if (protocol_ < kFirstProtocolWithActions) {
    throw SupervisorUnreachable("the supervisor at " + base::terminalText(address_) +
                                " is of an older version of isopool, which can't be asked to act; "
                                "restart it with the installed version");
  }
  request.token = ++token_;
  socket_.send(request, {}, kPatience);
  for (;;) {
    if (auto outcome = receiveAnswer<ipc::ActionDone>()) return *outcome;
    awaitAnswer();
  }
}

void SupervisorLink::awaitAnswer() {
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
  if (left.count() <= 0) giveUp();
  socket_.waitReadable(left);
}

void SupervisorLink::request() {
  deadline_ = Clock::now() + kPatience;
  socket_.send(ipc::RequestReport{++token_}, {}, kPatience);
}

std::optional<ipc::Report> SupervisorLink::receive() { return receiveAnswer<ipc::Report>(); }

template <typename Message>
std::optional<Message> SupervisorLink::receiveAnswer() {
  const std::string who = "the supervisor at " + base::terminalText(address_);
  try {
    const bool gone = socket_.receive() == ipc::ReceiveResult::kPeerGone;
    while (std::optional<ipc::Frame> frame = socket_.next()) {
      if (frame->type == ipc::MessageType::kFailure) {
        throw SupervisorUnreachable(
            who + " reports: " + base::terminalText(ipc::decodeMessage<ipc::Failure>(*frame).text));
      }
      if (frame->type == ipc::MessageType::kWelcome) {
        protocol_ = ipc::decodeMessage<ipc::Welcome>(*frame).protocolVersion;
        continue;
      }
      auto answer = ipc::decodeMessage<Message>(*frame);
      if (answer.token < token_) continue;  // answers a request that was abandoned
      if (answer.token != token_) throw ipc::ProtocolError("an answer that was not requested");
      answered_ = true;
      return answer;
    }
    if (gone)
      throw ConnectionLost(who +
                           (answered_ ? " has ended" : " closed the connection without an answer"));
  } catch (const ipc::ProtocolError& error) {
    throw SupervisorUnreachable(
        "what listens at " + base::terminalText(address_) +
        " is not an isopoold of this version: " + base::terminalText(error.what()));
  }
  return std::nullopt;
}

void SupervisorLink::giveUp() const {
  throw SupervisorUnreachable(
      "the supervisor at " + base::terminalText(address_) + " did not answer within " +
      wordsForDuration(kPatience.count()) +
      "; it is stopped, hangs, starts or drains, or another program listens "
      "there");
}

}  // namespace isopool::cli

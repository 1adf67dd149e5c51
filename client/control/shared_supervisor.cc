// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/shared_supervisor.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/unix_address.h"
#include "ipc/crash_point.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

[[noreturn]] void fail(const std::string& address, int error) {
  std::string text = "the supervisor at " + address + " can't be reached: " + std::strerror(error);
  const std::string kind = error == ECONNREFUSED ? base::otherFileAt(address) : "";
  if (!kind.empty()) {
    text += "; it is " + kind +
            ", not a socket: name the socket of a supervisor, in the program or with "
            "ISOPOOL_SOCKET";
  } else if (error == ENOENT || error == ECONNREFUSED) {
    text += "; start one with isopoold --listen " + address;
  } else if (error == EACCES || error == EPERM) {
    text += "; its socket accepts its own user, root and the group that socket_group names";
  } else if (error == EAGAIN) {
    text += "; it does not accept connections now";
  }
  throw SupervisorLost(text);
}

}  // namespace

ipc::ControlSocket connectToSupervisor(const std::string& address) {
  const auto name = base::UnixAddress::ofPath(address);
  if (!name) fail(address, ENAMETOOLONG);
  // Not blocking: a supervisor whose queue of connections is full can't serve this program.
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) fail(address, errno);
  if (::connect(socket.get(), name->get(), name->bytes()) != 0) fail(address, errno);
  ipc::reachCrashPoint(ipc::CrashPoint::kSupervisorConnected);
  return ipc::ControlSocket(std::move(socket));
}

}  // namespace isopool::client

// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/clients/listener.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/log/log.h"
#include "base/running_time.h"
#include "base/unix_address.h"
#include "supervisor/processes/service_manager.h"

namespace isopool::supervisor {

namespace {

constexpr base::Milliseconds kOutOfDescriptors(100);
constexpr base::Milliseconds kPredecessorsEnd(2000);
// A supervisor whose guardian was killed serves on until the kernel has killed it, too: whoever
// waits for the guardian only, as a service manager does, starts the next one before that.
constexpr base::Milliseconds kKilledOnesEnd(1000);
constexpr int kLockLook = 5;  // ms
// The kernel releases the lock of a process that ends slightly before it closes its socket.
constexpr int kServedLooks = 4;
constexpr int kServedLook = 50;  // ms
constexpr int kBacklog = 1024;
constexpr int kAcceptedAtOnce = 64;  // then the loop's other handlers run

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error("can't listen at " + path + ": " + what);
}

bool isServed(const base::UnixAddress& address) {
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(socket.get(), address.get(), address.bytes()) == 0 || errno == EAGAIN;
}

// The process id in the lock's file: of the supervisor that served the path last, if it is alive.
std::optional<pid_t> holderIn(const base::Fd& lock) {
  char text[16];
  const ssize_t bytes = ::pread(lock.get(), text, sizeof text, 0);
  pid_t holder = 0;
  const char* end = text + std::max<ssize_t>(bytes, 0);
  if (std::from_chars(text, end, holder).ec != std::errc() || holder <= 0) return std::nullopt;
  if (::kill(holder, 0) != 0 && errno != EPERM) return std::nullopt;
  return holder;
}

// For the error message of the next supervisor. A file system without room leaves the file empty.
void writeHolder(const base::Fd& lock) {
  if (!lock.valid() || ::ftruncate(lock.get(), 0) != 0) return;
  const std::string text = std::to_string(::getpid()) + "\n";
  [[maybe_unused]] const ssize_t ignored = ::pwrite(lock.get(), text.data(), text.size(), 0);
}

// The lock keeps two supervisors that start at the same time from both taking the path. Its file is
// never removed: that would be a race. Waits a while for a predecessor that is ending.
base::Fd lockPath(const std::string& path, const base::UnixAddress& address) {
  const std::string name = path + ".lock";
  base::Fd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) fail(path, name + ": " + std::strerror(errno));
  base::RunningTime waited;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail(path, std::strerror(errno));
    const auto time = waited.look(std::chrono::steady_clock::now());
    if (time > kKilledOnesEnd && isServed(address)) fail(path, "another supervisor serves it");
    if (time > kPredecessorsEnd) {
      const std::optional<pid_t> holder = holderIn(lock);
      fail(path, "another supervisor" +
                     (holder ? " (pid " + std::to_string(*holder) + ")" : std::string()) +
                     " holds the lock " + name +
                     " and does not serve the path: its socket was removed, or it does not end");
    }
    ::poll(nullptr, 0, kLockLook);
  }
  return lock;
}

// Removes the socket file of a process that has ended. The caller holds the lock, so no supervisor
// serves the path, unless its lock file was removed; but another program may serve it.
void removeLeftover(const std::string& path, const base::UnixAddress& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) fail(path, "it exists and is not a socket");
  for (int look = 0; isServed(address); ++look) {
    if (look == kServedLooks) fail(path, "another process serves it");
    ::poll(nullptr, 0, kServedLook);
  }
  if (errno != ECONNREFUSED) {
    fail(path,
         std::string("can't determine whether another process serves it: ") + std::strerror(errno));
  }
  ::unlink(path.c_str());
}

std::pair<dev_t, ino_t> fileAt(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

}  // namespace

ListeningSocket listenAt(const std::string& path, const std::string& group) {
  const auto address = base::UnixAddress::ofPath(path);
  if (!address) {
    fail(path, "a socket's path has 1 to " + std::to_string(base::UnixAddress::kMostBytes) +
                   " characters");
  }
  gid_t groupId = static_cast<gid_t>(-1);
  if (!group.empty()) {
    const struct group* entry = ::getgrnam(group.c_str());
    if (entry == nullptr) fail(path, "the group " + group + " does not exist (socket_group)");
    groupId = entry->gr_gid;
  }
  ListeningSocket listening;
  listening.lock = lockPath(path, *address);
  removeLeftover(path, *address);
  listening.socket = base::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening.socket.valid()) fail(path, std::strerror(errno));
  // Sets the mode before bind(): no process can connect with a wider one in between.
  const mode_t before = ::umask(0177);
  const int bound = ::bind(listening.socket.get(), address->get(), address->bytes());
  const int error = errno;
  ::umask(before);
  if (bound != 0) fail(path, std::strerror(error));
  listening.path = path;
  listening.file = fileAt(path);
  if (!group.empty() && (::chown(path.c_str(), static_cast<uid_t>(-1), groupId) != 0 ||
                         ::chmod(path.c_str(), 0660) != 0)) {
    fail(path, "it can't be given to the group " + group + ": " + std::strerror(errno));
  }
  if (::listen(listening.socket.get(), kBacklog) != 0) fail(path, std::strerror(errno));
  return listening;
}

ListeningSocket inherited(base::Fd socket, base::Fd lock) {
  ListeningSocket listening;
  listening.socket = std::move(socket);
  listening.lock = std::move(lock);
  if (!listening.lock.valid()) return listening;
  listening.path = pathOfSocket(listening.socket);
  listening.file = fileAt(listening.path);
  return listening;
}

bool isTakenOver(const ListeningSocket& closed) {
  if (closed.path.empty()) return false;
  const std::pair<dev_t, ino_t> present = fileAt(closed.path);
  return present != std::pair<dev_t, ino_t>() && present != closed.file;
}

Listener::Listener(base::EventLoop& loop, ListeningSocket socket,
                   std::function<void(base::Fd)> accepted)
    : loop_(loop), socket_(std::move(socket)), accepted_(std::move(accepted)), retry_(loop) {
  ::fcntl(socket_.socket.get(), F_SETFL, O_NONBLOCK);
  writeHolder(socket_.lock);
  watch();
}

Listener::~Listener() {
  if (socket_.socket.valid()) removeFile();
}

void Listener::close() {
  // The kernel would end the connections of the backlog without a reason. Those of a socket that
  // the service manager made wait for the next supervisor.
  for (int batch = 0; !socket_.path.empty() && batch < kBacklog / kAcceptedAtOnce; ++batch) {
    if (!accept()) break;
  }
  removeFile();
  leaveToSuccessor();
}

void Listener::leaveToSuccessor() {
  retry_.cancel();
  watch_.reset();
  socket_.socket.close();
  socket_.lock.close();
}

void Listener::removeFile() const {
  // Another supervisor may have made a new file at this path.
  if (!socket_.path.empty() && fileAt(socket_.path) == socket_.file) {
    ::unlink(socket_.path.c_str());
  }
}

void Listener::watch() {
  watch_ = std::make_unique<base::ReadinessWatch>(loop_, socket_.socket.get());
  watch_->onReadable([this] { accept(); });
}

// False if no connection waits, or none can be accepted now.
bool Listener::accept() {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    base::Fd connection(
        ::accept4(socket_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      accepted_(std::move(connection));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    // Out of descriptors, the connection stays pending: retry later instead of busy waiting.
    const int error = errno;
    if (const auto leftOut = failureRate_.next(loop_.now())) {
      base::log(base::LogLevel::kError,
                std::string("connections can't be accepted, will retry: ") + std::strerror(error) +
                    (error == EMFILE ? ": raise LimitNOFILE of the unit, or ulimit -n" : "") +
                    *leftOut);
    }
    watch_.reset();
    retry_.setAfter(kOutOfDescriptors, [this] { watch(); });
    return false;
  }
  return true;
}

}  // namespace isopool::supervisor

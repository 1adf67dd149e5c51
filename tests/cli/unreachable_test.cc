// SPDX-License-Identifier: BSD-3-Clause
// Without a supervisor, with another server at the address, or without an answer, the command
// prints one line and exits with 1 in time.
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/unix_address.h"
#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"
#include "tests/cli/own_supervisor.h"
#include "tests/cli/running_command.h"

namespace isopool::tests {
namespace {

/// A socket that listens. accept() returns the next connection.
class OtherServer {
 public:
  explicit OtherServer(const std::string& path)
      : listening_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto name = base::UnixAddress::ofPath(path).value();
    EXPECT_EQ(::bind(listening_.get(), name.get(), name.bytes()), 0);
    EXPECT_EQ(::listen(listening_.get(), 4), 0);
  }

  void close() { listening_.close(); }
  base::Fd accept() {
    return base::Fd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  base::Fd listening_;
};

class Unreachable : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/s.sock"; }

  void expectFailure(const CommandOutcome& outcome, const std::string& part) {
    EXPECT_EQ(outcome.exitCode, 1);
    EXPECT_EQ(outcome.output, "");
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << outcome.errors;
  }

  CommandOutcome status() { return runCommand({"status", "--socket", path()}); }

  TemporaryFolder folder_;
};

TEST_F(Unreachable, WithoutASocketItSaysHowToStartOne) {
  expectFailure(status(), "isopoold --listen " + path());
}

TEST_F(Unreachable, WithoutAnyAddressTheDefaultIsNamed) {
  if (::access("/run/isopool/isopoold.sock", F_OK) == 0) GTEST_SKIP() << "one is installed here";
  expectFailure(runCommand({"clients"}), "/run/isopool/isopoold.sock");
}

TEST_F(Unreachable, AbandonedSocketIsReported) {
  OtherServer(path()).close();
  expectFailure(status(), "no process listens there");
}

TEST_F(Unreachable, AFileIsNoSupervisor) {
  std::ofstream(path()) << "text";
  expectFailure(status(), "it is a regular file, not a socket");
}

TEST_F(Unreachable, TooLongPathIsReported) {
  expectFailure(runCommand({"status", "--socket", "/tmp/" + std::string(200, 'a')}), "107 bytes");
}

TEST_F(Unreachable, GarbageOfAnotherServerIsReported) {
  OtherServer server(path());
  RunningCommand command({"status", "--socket", path()});
  const base::Fd connection = server.accept();
  const std::string garbage = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_GT(::write(connection.get(), garbage.data(), garbage.size()), 0);
  expectFailure(command.finish(), "is not an isopoold of this version");
}

TEST_F(Unreachable, ServerThatClosesTheConnectionIsReported) {
  OtherServer server(path());
  RunningCommand command({"status", "--socket", path()});
  server.accept().close();
  expectFailure(command.finish(), "closed the connection");
}

TEST_F(Unreachable, ARefusalIsPassedOnWithoutItsControlCharacters) {
  OtherServer server(path());
  RunningCommand command({"status", "--socket", path()});
  ipc::ControlSocket connection(server.accept());
  connection.send(ipc::Failure{"not you\x1b[2J\nnor anybody"});
  expectFailure(command.finish(), "reports: not you?[2J nor anybody");
}

TEST_F(Unreachable, ASupervisorThatKnowsNoActionsIsNotAskedForOne) {
  OtherServer server(path());
  RunningCommand command({"evict", "7", "--socket", path()});
  ipc::ControlSocket connection(server.accept());
  ipc::Welcome welcome;
  welcome.protocolVersion = 3;
  connection.send(welcome);
  expectFailure(command.finish(), "is of an older version of isopool, which can't be asked to act");
}

TEST_F(Unreachable, SilentServerTimesOut) {
  OtherServer server(path());
  const CommandOutcome outcome = status();
  expectFailure(outcome, "did not answer within 2.0 s");
  EXPECT_LT(outcome.took, milliseconds(4000));
}

TEST_F(Unreachable, StoppedSupervisorTimesOut) {
  const OwnSupervisor supervisor;
  supervisor.signal(SIGSTOP);
  const CommandOutcome outcome = runCommand({"workers", "--socket", supervisor.address()});
  expectFailure(outcome, "it is stopped, hangs");
  EXPECT_GE(outcome.took, milliseconds(1900));
  EXPECT_LT(outcome.took, milliseconds(4000));
}

TEST_F(Unreachable, SocketWithoutPermissionIsReported) {
  const passwd* nobody = ::getpwnam("nobody");
  if (::geteuid() != 0 || nobody == nullptr) GTEST_SKIP() << "becoming another user needs root";
  OtherServer server(path());
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0700), 0);
  expectFailure(runCommandAs(nobody->pw_uid, {"status", "--socket", path()}), "permission denied");
}

TEST_F(Unreachable, AnotherUserIsRefusedByTheSupervisor) {
  const passwd* nobody = ::getpwnam("nobody");
  if (::geteuid() != 0 || nobody == nullptr) GTEST_SKIP() << "becoming another user needs root";
  const OwnSupervisor supervisor;
  const std::string folder = supervisor.address().substr(0, supervisor.address().rfind('/'));
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(supervisor.address().c_str(), 0666), 0);
  expectFailure(runCommandAs(nobody->pw_uid, {"status", "--socket", supervisor.address()}),
                "socket_group");
}

}  // namespace
}  // namespace isopool::tests

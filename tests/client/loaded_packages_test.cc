// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/loaded_packages.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <future>

#include "ipc/control/client_messages.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

/// The packages that a process has loaded. The test plays the shared supervisor.
class LoadedPackage : public ::testing::Test {
 protected:
  /// The next message of the client as the supervisor receives it.
  template <typename Message>
  std::optional<Message> next() {
    for (;;) {
      if (auto frame = supervisor_.next()) return ipc::decodeMessage<Message>(*frame);
      if (!supervisor_.waitReadable(kPatience)) return std::nullopt;
      if (supervisor_.receive() == ipc::ReceiveResult::kPeerGone) return std::nullopt;
    }
  }

  /// Answers as a supervisor that already holds the same bytes.
  void answerWithSameBytes() {
    ipc::Frame frame;
    frame.descriptors.push_back(file_->object().duplicate());
    packages_.answered(ipc::PackageHeld{file_->id().value, ""}, frame);
  }

  std::pair<base::Fd, base::Fd> pair_ = ipc::ControlSocket::makePair();
  ipc::ControlSocket client_{std::move(pair_.first)};
  ipc::ControlSocket supervisor_{std::move(pair_.second)};
  const base::Fd wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  client::LoadedPackages packages_{std::make_shared<client::ControlWriter>(client_, wake_.get()),
                                   /*patience=*/milliseconds(50)};
  const std::shared_ptr<client::ArchiveFile> file_ =
      client::ArchiveFile::copyOf("a package", "its bytes", 9);
};

TEST_F(LoadedPackage, IsConfirmedByAnyUseThatSeesTheAnswer) {
  // The first use ends with an error because it waits in vain. Meanwhile there is a second use. It
  // does not wait and takes the part of a use that waits for longer.
  auto first = std::async(std::launch::async, [&] { packages_.loadShared(file_); });
  ASSERT_TRUE(next<ipc::LoadPackage>());
  packages_.load(file_);
  EXPECT_THROW(first.get(), SupervisorLost);
  answerWithSameBytes();
  packages_.loadShared(file_);
  const auto confirmed = next<ipc::ConfirmPackage>();
  ASSERT_TRUE(confirmed) << "no use confirms the package, and no worker maps it";
  EXPECT_EQ(confirmed->package, file_->id().value);
  EXPECT_TRUE(confirmed->same);
  // Only one confirmation is sent: for the supervisor a second one violates the protocol.
  packages_.loadShared(file_);
  for (int i = 0; i < 3; ++i) packages_.unload(file_->id());
  EXPECT_TRUE(next<ipc::UnloadPackage>());
}

}  // namespace
}  // namespace isopool::tests

// SPDX-License-Identifier: BSD-3-Clause
#include "base/loop/kernel_event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "base/fd.h"

namespace isopool::base {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read = base::Fd(ends[0]);
    write = base::Fd(ends[1]);
  }
  void fill() const { EXPECT_EQ(::write(write.get(), "x", 1), 1); }

  base::Fd read;
  base::Fd write;
};

// Two descriptors are ready in one batch. The handler of the first destroys the watch of the second
// and watches a third: the pending event of the second must not be reported for the third.
TEST(KernelEventLoop, ReportsNoDescriptorReadyForTheEventOfOneWatchedBefore) {
  KernelEventLoop loop;
  const std::array<Pipe, 2> ready;
  const Pipe quiet;
  std::array<std::unique_ptr<EventLoop::Watch>, 2> watches;
  std::unique_ptr<EventLoop::Watch> late;
  int reported = 0;
  for (size_t i = 0; i < ready.size(); ++i) {
    watches[i] = loop.watch(ready[i].read.get());
    watches[i]->awaitReadable([&, i] {
      watches[1 - i].reset();
      late = loop.watch(quiet.read.get());
      late->awaitReadable([&] { ++reported; });
    });
  }
  for (const Pipe& pipe : ready) pipe.fill();
  for (int idle = 0; idle < 3;) idle = loop.poll() > 0 ? 0 : idle + 1;
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(reported, 0);
  quiet.fill();
  for (int idle = 0; idle < 3;) idle = loop.poll() > 0 ? 0 : idle + 1;
  EXPECT_EQ(reported, 1);
}

TEST(KernelEventLoop, ReportsADescriptorWritableOnceThereIsRoom) {
  KernelEventLoop loop;
  const Pipe pipe;
  std::array<char, 4096> page{};
  while (::write(pipe.write.get(), page.data(), page.size()) > 0) {
  }
  const auto watch = loop.watch(pipe.write.get());
  int reported = 0;
  watch->awaitWritable([&] { ++reported; });
  for (int idle = 0; idle < 3;) idle = loop.poll() > 0 ? 0 : idle + 1;
  EXPECT_EQ(reported, 0);
  while (::read(pipe.read.get(), page.data(), page.size()) > 0) {
  }
  for (int idle = 0; idle < 3;) idle = loop.poll() > 0 ? 0 : idle + 1;
  EXPECT_EQ(reported, 1);
}

}  // namespace
}  // namespace isopool::base

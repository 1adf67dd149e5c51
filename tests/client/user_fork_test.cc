// SPDX-License-Identifier: BSD-3-Clause
// A process that user code forks in a worker has copies of the tensors that lie in memory shared
// with the program: neither side sees what the other one writes, as in one process with torch.
#include <string>
#include <utility>
#include <vector>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

// No operation of torch in the child: a lock may be held by a thread that is not there.
constexpr const char* kForking = R"(
import gc
import os
import sys

import numpy
import torch

def ended_by(error):
    """What a child has written to its streams, and its exit code, if this exception is its last."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(write, 2)
        sys.stdout = os.fdopen(write, "w")
        sys.stdout.write("begun ")
        raise eval(error)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def forked(x):
    """Returns the child's status (0: it saw what was there when it was forked) and two tensors. The
    child writes to all tensors of the worker after the parent has."""
    made = [x, torch.zeros(3000), torch.from_numpy(numpy.zeros(3000, dtype=numpy.float32))]
    all_tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    arrays = [each.detach().numpy() for each in all_tensors if each.numel() == 3000]
    before = [array.copy() for array in arrays]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read, 1)
        same = all(numpy.array_equal(one, other) for one, other in zip(arrays, before))
        for array in arrays:
            array[:] = 7
        os._exit(0 if same else 1)
    for tensor in made:
        tensor.detach().numpy()[:] = 2
    os.write(write, b"x")
    status = os.waitpid(pid, 0)[1]
    os.close(read)
    os.close(write)
    return status, made[1], made[2]
)";

constexpr int64_t kSize = 3000;

bool isAll(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

class UserFork : public ::testing::Test {
 protected:
  void begin() {
    manager_.emplace(1);
    manager_->registerModuleSource("forking", kForking);
    session_.emplace(manager_->acquireOne());
  }
  at::IValue forked(const at::Tensor& x) {
    return session_->global("forking", "forked")({x}).toIValue();
  }
  void expectApart(const at::Tensor& x) {
    const at::IValue result = forked(x);
    const auto& parts = result.toTupleRef().elements();
    EXPECT_EQ(parts[0].toInt(), 0);
    EXPECT_TRUE(isAll(parts[1].toTensor(), 2));
    EXPECT_TRUE(isAll(parts[2].toTensor(), 2));
    EXPECT_TRUE(isAll(x, 2));
  }

  std::optional<InterpreterManager> manager_;
  std::optional<InterpreterSession> session_;
};

TEST_F(UserFork, HasCopiesOfInputsAndOfWhatTheCallMade) {
  begin();
  for (int i = 0; i < 3; ++i) expectApart(empty({kSize}).fill_(i));
}

TEST_F(UserFork, EndsWithItsLastExceptionAsInPython) {
  begin();
  const auto endedBy = [&](const std::string& error) {
    const at::IValue answer = session_->global("forking", "ended_by")({error}).toIValue();
    const auto& parts = answer.toTupleRef().elements();
    return std::pair(parts[0].toStringRef(), parts[1].toInt());
  };
  EXPECT_EQ(endedBy("SystemExit"), std::pair(std::string("begun "), int64_t{0}));
  EXPECT_EQ(endedBy("SystemExit(0)"), std::pair(std::string("begun "), int64_t{0}));
  EXPECT_EQ(endedBy("SystemExit(3)"), std::pair(std::string("begun "), int64_t{3}));
  EXPECT_EQ(endedBy("SystemExit(-1)"), std::pair(std::string("begun "), int64_t{255}));
  EXPECT_EQ(endedBy("SystemExit('no room')"),
            std::pair(std::string("no room\nbegun "), int64_t{1}));
  const auto [text, code] = endedBy("ValueError('wrong')");
  EXPECT_EQ(code, 1);
  EXPECT_TRUE(text.starts_with("Traceback (most recent call last):\n")) << text;
  EXPECT_TRUE(text.ends_with("\nValueError: wrong\nbegun ")) << text;
}

TEST_F(UserFork, HasCopiesOfWhatTheModelKeeps) {
  begin();
  const Subject subject(*manager_);
  const at::Tensor x = empty({kSize}).fill_(3);
  subject.ask("keep", {x});
  const at::Tensor result = subject.tensor("make_kept", {kSize});
  for (int i = 0; i < 3; ++i) {
    // The model's x has private pages: the worker sees the caller's through a second mapping.
    expectApart(x);
    const at::IValue sums = subject.ask("kept_sum");
    EXPECT_EQ(sums.toListRef()[0].toDouble(), 3.0 * kSize);
    EXPECT_EQ(sums.toListRef()[1].toDouble(), 0.0);
  }
  EXPECT_TRUE(isAll(result, 0));
}

TEST_F(UserFork, OfMoreThanTheLimitHasNoneOfThem) {
  const ScopedVariable limit("ISOPOOL_FORK_COPY_LIMIT=4096");
  begin();
  const at::Tensor x = empty({kSize}).fill_(3);
  const at::IValue answer = forked(x);
  const auto& parts = answer.toTupleRef().elements();
  EXPECT_EQ(parts[0].toInt(), SIGSEGV);
  EXPECT_TRUE(isAll(parts[1].toTensor(), 2));
  EXPECT_TRUE(isAll(x, 2));
}

TEST_F(UserFork, SharesThemIfNothingMayBeCopied) {
  const ScopedVariable limit("ISOPOOL_FORK_COPY_LIMIT=0");
  begin();
  const at::Tensor x = empty({kSize}).fill_(3);
  const at::IValue answer = forked(x);
  EXPECT_NE(answer.toTupleRef().elements()[0].toInt(), 0);
  EXPECT_TRUE(isAll(x, 7));
}

}  // namespace
}  // namespace isopool::tests

// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstring>

#include "tests/worker/harness.h"

namespace isopool::tests {

namespace {

class Kept : public ::testing::Test {
 protected:
  Kept() { client.defineProbe(); }

  std::vector<double> keptSums() {
    const at::IValue value = client.probeValue("kept_sum");
    std::vector<double> sums;
    for (const auto& sum : value.toListRef()) sums.push_back(sum.toDouble());
    return sums;
  }

  std::unique_ptr<WorkerProcess> worker = sharedZygote().fork(1);
  TestClient client{*worker};
};

using Status = ipc::CompletionStatus;
using Kind = ipc::StorageKind;
using Reason = ipc::CopyReason;

bool isAll(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

}  // namespace

TEST_F(Kept, ResultThatTheModelKeepsIsOneCopyAndThenTwoTensors) {
  const Answer answer = client.probe("make_kept", {100'000});
  ASSERT_EQ(answer.storages[0].kind, Kind::kLent);
  EXPECT_EQ(answer.copied(), answer.copies.at(Reason::kKeptByModel));
  EXPECT_GE(answer.copied(), 400'000u);
  EXPECT_LE(answer.copied(), 400'000u + ipc::kPageBytes);
  const at::Tensor result = answer.value.toTensor();
  client.probeValue("write_kept", {5.0});
  EXPECT_TRUE(isAll(result, 0));
  at::Tensor(result).fill_(9);
  EXPECT_EQ(keptSums()[0], 500'000);
}

TEST_F(Kept, ANumpyViewKeepsAResultToo) {
  const Answer answer = client.probe("make_with_numpy_view", {100'000});
  EXPECT_GE(answer.copies.at(Reason::kKeptByModel), 400'000u);
  client.probeValue("write_array", {5.0});
  EXPECT_TRUE(isAll(answer.value.toTensor(), 0));
}

TEST_F(Kept, AResultReturnedOnceMoreIsACopyOfWhatTheModelHas) {
  const Answer first = client.probe("make_kept", {100'000});
  client.probeValue("write_kept", {2.0});
  const Answer second = client.probe("return_kept", {0});
  EXPECT_TRUE(isAll(first.value.toTensor(), 0));
  EXPECT_TRUE(isAll(second.value.toTensor(), 2));
  EXPECT_NE(first.value.toTensor().data_ptr(), second.value.toTensor().data_ptr());
}

TEST_F(Kept, BlocksAreWholeAgainAfterTheModelForgets) {
  for (int i = 0; i < 100; ++i) {
    {
      const Answer answer = client.probe("make_kept", {500'000});
      ASSERT_EQ(answer.storages[0].kind, Kind::kLent) << i;
      client.probeValue("write_kept", {7.0});
      ASSERT_TRUE(isAll(answer.value.toTensor(), 0)) << i;
    }
    client.probeValue("forget");
    at::Tensor x = client.tensor({500'000}).fill_(1);
    const Answer sum = client.probe("add_one", {x});
    ASSERT_EQ(sum.storages[0].kind, Kind::kLent);
    ASSERT_TRUE(isAll(sum.value.toTensor(), 2)) << i;
  }
}

TEST_F(Kept, InputThatTheModelKeepsIsItsOwnAndTheLeaseGoesBackAtOnce) {
  at::Tensor x = client.tensor({100'000}).fill_(1);
  const Answer answer = client.probe("keep", {x});
  EXPECT_EQ(answer.copies.at(Reason::kKeptByModel), 400'000u);
  EXPECT_EQ(client.inputLeasesOut(), 0u);
  x.fill_(9);
  EXPECT_EQ(keptSums()[0], 100'000);
  client.probeValue("write_kept", {3.0});
  EXPECT_TRUE(isAll(x, 9));
}

TEST_F(Kept, ANewInputOnTheSamePagesIsSeenThroughAWindow) {
  at::Tensor x = client.tensor({100'000}).fill_(1);
  client.probeValue("keep", {x});
  x.fill_(2);
  // The same memory is passed again, and kept again.
  const Answer second = client.probe("keep", {x});
  EXPECT_EQ(second.copies.at(Reason::kKeptByModel), 400'000u);
  x.fill_(3);
  EXPECT_EQ(client.probe("sums", {x}).value.toDouble(), 300'000);
  client.probeValue("add_in_place", {x});
  EXPECT_TRUE(isAll(x, 4));
  EXPECT_EQ(keptSums(), (std::vector<double>{100'000, 200'000}));
  client.probeValue("forget");
  x.fill_(5);
  EXPECT_EQ(client.probe("sums", {x}).value.toDouble(), 500'000);
  EXPECT_EQ(client.inputLeasesOut(), 0u);
}

// The memory of an input that the model keeps goes back to the client at once, which may write its
// next call there, while the worker has private pages at this address.
TEST_F(Kept, ALongCallInThePagesOfAKeptInputIsReadAsTheClientWroteIt) {
  for (int i = 0; i < 20; ++i) {
    const int64_t bytes = 2'000 * (i + 1);
    client.probeValue("keep", {client.tensor({bytes / 4}).fill_(i)});
    EXPECT_EQ(client.inputLeasesOut(), 0u);
    for (const int64_t length : {bytes - 500, bytes, bytes + 3'000}) {
      const std::string text(static_cast<size_t>(length), static_cast<char>('a' + i));
      EXPECT_EQ(client.probeValue("identity", {text}).toStringRef(), text);
    }
  }
  EXPECT_EQ(keptSums().size(), 20u);
}

TEST_F(Kept, AnInputThatIsKeptAndReturnedIsTheCallersOwn) {
  at::Tensor x = client.tensor({100'000}).fill_(1);
  const Answer answer = client.probe("keep_and_return", {x});
  EXPECT_EQ(answer.storages[0].kind, Kind::kEcho);
  EXPECT_EQ(answer.value.toTensor().data_ptr(), x.data_ptr());
  client.probeValue("write_kept", {3.0});
  EXPECT_TRUE(isAll(x, 1));
}

TEST_F(Kept, WhatAFailedCallKeptIsPrivateToo) {
  at::Tensor x = client.tensor({100'000}).fill_(1);
  EXPECT_EQ(client.probe("keep_and_fail", {x}).status, Status::kPythonError);
  EXPECT_EQ(client.inputLeasesOut(), 0u);
  x.fill_(9);
  EXPECT_EQ(keptSums()[0], 100'000);
}

TEST_F(Kept, ASmallResultThatTheModelKeepsTravelsInsideTheAnswer) {
  const Answer answer = client.probe("make_kept", {100});
  ASSERT_EQ(answer.storages[0].kind, Kind::kInline);
  EXPECT_EQ(answer.copied(), 400u);
  EXPECT_EQ(answer.copied(), answer.copies.at(Reason::kKeptByModel));
}

TEST_F(Kept, ResultIsLentIfItsCopyFindsNoRoom) {
  // The result takes 5 of the arena's 8 MB, and the supervisor does not answer.
  const Answer answer = client.probe("make_kept", {1'250'000});
  ASSERT_EQ(answer.storages[0].kind, Kind::kLent);
  EXPECT_GE(answer.copies.at(Reason::kKeptByModel), 5'000'000u);
  client.probeValue("write_kept", {5.0});
  EXPECT_TRUE(isAll(answer.value.toTensor(), 0));
  at::Tensor(answer.value.toTensor()).fill_(9);
  EXPECT_EQ(keptSums()[0], 6'250'000);
}

TEST_F(Kept, AHiddenBlockCostsNothingWhileItsClientIsTheOnlyOne) {
  const Answer answer = client.probe("make_and_hide", {100'000});
  EXPECT_EQ(answer.copied(), 0u);
  EXPECT_EQ(keptSums()[0], 300'000);
}

TEST_F(Kept, MemoryIsProtectedFromItsClientOnceAnotherIsAttached) {
  client.probeValue("make_and_hide", {100'000});
  const auto clearAll = [&] {
    std::memset(client.outputSegment().data(), 0, client.outputSegment().size());
  };
  // Until then the client reaches the block; otherwise the test would show nothing.
  clearAll();
  EXPECT_EQ(keptSums()[0], 0);
  client.probeValue("write_kept", {3.0});
  {
    TestClient second(*worker);
    clearAll();
    EXPECT_EQ(keptSums()[0], 300'000);
    // What the model keeps from now on is copied during the call.
    const Answer answer = client.probe("make_and_hide", {100'000});
    EXPECT_GE(answer.copies.at(Reason::kKeptByModel), 400'000u);
    clearAll();
    EXPECT_EQ(keptSums(), (std::vector<double>{300'000, 300'000}));
    second.detach();
  }
  client.probeValue("forget");
  EXPECT_EQ(client.probe("zeros", {100'000}).copied(), 0u);
  EXPECT_EQ(client.probe("make_and_hide", {100'000}).copied(), 0u);
}

TEST_F(Kept, AResultThatComesHomeIsTheSameMemory) {
  at::Tensor x = client.tensor({100'000}).fill_(1);
  at::Tensor y = client.probeValue("add_one", {x}).toTensor();
  client.probeValue("add_in_place", {y});
  EXPECT_TRUE(isAll(y, 3));
  const Answer answer = client.probe("identity", {y});
  EXPECT_EQ(answer.storages[0].kind, Kind::kEcho);
  EXPECT_EQ(answer.copied(), 0u);
}

TEST_F(Kept, AKeptResultThatComesHomeIsSeenThroughAWindow) {
  at::Tensor y = client.probe("make_kept", {100'000}).value.toTensor();
  y.fill_(4);
  EXPECT_EQ(client.probe("sums", {y}).value.toDouble(), 400'000);
  EXPECT_EQ(keptSums()[0], 0);
  client.probeValue("keep", {y});
  y.fill_(5);
  EXPECT_EQ(keptSums(), (std::vector<double>{0, 400'000}));
  client.probeValue("forget");
  EXPECT_EQ(client.probe("sums", {y}).value.toDouble(), 500'000);
}

TEST_F(Kept, AHandlesResultThatIsLentAgainLeavesItsBlockWhole) {
  // The tensor takes 5 of the arena's 8 MB, so there is no room for a copy: from now on the handle
  // has private pages.
  at::Tensor y = client.probeValue("zeros", {1'250'000}).toTensor();
  const Answer made = client.ask(ipc::Operation::kFromValue, [&](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(2);
    writer.addValue(y);
    writer.packer().pack(1);
  });
  ASSERT_EQ(made.status, Status::kValue) << made.reason;
  {
    const Answer again = client.ask(ipc::Operation::kToValue, [](ipc::PayloadWriter& writer) {
      writer.packer().pack_array(1).pack(1);
    });
    ASSERT_EQ(again.status, Status::kValue) << again.reason;
    ASSERT_EQ(again.storages.at(0).kind, Kind::kLent);
    EXPECT_GE(again.copies.at(Reason::kKeptByModel), 5'000'000u);
  }
  y = at::Tensor();
  client.ask(ipc::Operation::kReleaseHandles,
             [](ipc::PayloadWriter& writer) { writer.packer().pack_array(1).pack(1); });
  const Answer next = client.probe("add_one", {client.tensor({1'250'000}).fill_(1)});
  ASSERT_EQ(next.status, Status::kValue) << next.reason;
  ASSERT_EQ(next.storages.at(0).kind, Kind::kLent);
  EXPECT_TRUE(isAll(next.value.toTensor(), 2));
}

TEST_F(Kept, ARoundTripOfManyKeptBlocksLeavesNothing) {
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 50; ++i) {
      at::Tensor x = client.tensor({2000}).fill_(i);
      client.probeValue("keep", {x});
      client.probeValue("make_kept", {2000});
    }
    client.probeValue("forget");
  }
  EXPECT_EQ(client.inputLeasesOut(), 0u);
  EXPECT_EQ(client.inputBytesInUse(), 0u);
  const Answer answer = client.probe("zeros", {2'000'000});  // almost all of the 8 MB
  EXPECT_EQ(answer.copied(), 0u);
}

TEST_F(Kept, AHandleKeepsItsInputWithoutACopy) {
  at::Tensor x = client.tensor({100'000}).fill_(1);
  client.ask(ipc::Operation::kFromValue, [&](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(2);
    writer.addValue(x);
    writer.packer().pack(1);
  });
  EXPECT_EQ(client.inputLeasesOut(), 1u);
  client.ask(ipc::Operation::kReleaseHandles,
             [](ipc::PayloadWriter& writer) { writer.packer().pack_array(1).pack(1); });
  EXPECT_EQ(client.inputLeasesOut(), 0u);
}

TEST_F(Kept, WhatIsKeptOutlivesItsClient) {
  at::Tensor x = client.tensor({100'000}).fill_(1);
  client.probeValue("keep", {x});
  // A handle keeps its input in place. Its pages are privatised when the client leaves, and must
  // stay readable.
  client.ask(ipc::Operation::kGlobal, [](ipc::PayloadWriter& writer) {
    writer.packer()
        .pack_array(3)
        .pack(std::string("builtins"))
        .pack(std::string("setattr"))
        .pack(1);
  });
  client.ask(ipc::Operation::kGlobal, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(std::string("torch")).pack(std::string("version")).pack(2);
  });
  for (const char* name : {"first_kept", "second_kept"}) {
    client.ask(ipc::Operation::kCallHandle, [&](ipc::PayloadWriter& writer) {
      writer.packer().pack_array(4).pack(1).pack(3).pack_array(3);
      writer.addHandle(2);
      writer.addValue(std::string(name));
      writer.addValue(x);
      writer.packer().pack_map(0);
    });
  }
  EXPECT_EQ(client.inputLeasesOut(), 2u);
  client.detach();
  TestClient second(*worker);
  second.ask(ipc::Operation::kGlobal, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(std::string("torch.version"));
    writer.packer().pack(std::string("second_kept")).pack(1);
  });
  x.fill_(9);
  const Answer answer = second.ask(ipc::Operation::kToValue, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(1).pack(1);
  });
  ASSERT_EQ(answer.status, Status::kValue) << answer.reason;
  EXPECT_TRUE(isAll(answer.value.toTensor(), 1));
}

}  // namespace isopool::tests

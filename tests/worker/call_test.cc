// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ipc/control/worker_messages.h"
#include "testing/sanitizers.h"
#include "tests/worker/harness.h"

namespace isopool::tests {

namespace {

class Call : public ::testing::Test {
 protected:
  Call() { client.defineProbe(); }

  std::unique_ptr<WorkerProcess> worker = sharedZygote().fork(1);
  TestClient client{*worker};
};

using Status = ipc::CompletionStatus;
using Kind = ipc::StorageKind;
using Reason = ipc::CopyReason;

}  // namespace

TEST_F(Call, IdentityGivesBackTheCallersOwnStorageWithoutACopy) {
  at::Tensor x = client.tensor({1000}).fill_(3);
  const Answer answer = client.probe("identity", {x});
  ASSERT_EQ(answer.status, Status::kValue);
  ASSERT_EQ(answer.storages.size(), 1u);
  EXPECT_EQ(answer.storages[0].kind, Kind::kEcho);
  EXPECT_EQ(answer.value.toTensor().data_ptr(), x.data_ptr());
  EXPECT_TRUE(answer.value.toTensor().storage().is_alias_of(x.storage()));
  EXPECT_EQ(answer.copied(), 0u);
  EXPECT_EQ(client.inputLeasesOut(), 0u);
}

TEST_F(Call, ResultIsLentAndItsBlockUsedAgainAfterItsReturn) {
  at::Tensor x = client.tensor({100'000}).fill_(3);
  std::pair<uint32_t, uint64_t> place;
  {
    const Answer answer = client.probe("add_one", {x});
    ASSERT_EQ(answer.storages[0].kind, Kind::kLent);
    EXPECT_EQ(answer.copied(), 0u);
    EXPECT_TRUE(answer.value.toTensor().eq(4).all().item<bool>());
    place = {answer.storages[0].segment, answer.storages[0].offset};
    const Answer second = client.probe("add_one", {x});
    EXPECT_NE(std::pair(second.storages[0].segment, second.storages[0].offset), place);
  }
  const Answer third = client.probe("add_one", {x});
  EXPECT_EQ(std::pair(third.storages[0].segment, third.storages[0].offset), place);
}

TEST_F(Call, ManyResultsComeAndGoInAFixedArena) {
  at::Tensor x = client.tensor({500'000}).fill_(1);  // 2 MB of 8
  for (int i = 0; i < 200; ++i) {
    const Answer answer = client.probe("add_one", {x});
    ASSERT_EQ(answer.storages[0].kind, Kind::kLent) << i;
    ASSERT_EQ(answer.copied(), 0u) << i;
  }
}

TEST_F(Call, InPlaceWriteReachesTheCaller) {
  at::Tensor x = client.tensor({1000}).fill_(3);
  client.probeValue("add_in_place", {x});
  EXPECT_TRUE(x.eq(4).all().item<bool>());
}

TEST_F(Call, AliasesAmongResultsStayAliases) {
  at::Tensor x = client.tensor({1000}).fill_(1);
  const Answer answer = client.probe("twice", {x});
  ASSERT_EQ(answer.status, Status::kValue);
  EXPECT_EQ(answer.storages.size(), 1u);
  const auto elements = answer.value.toTupleRef().elements().vec();
  const at::Tensor whole = elements[0].toTensor();
  const at::Tensor part = elements[1].toTensor();
  const at::Tensor same = elements[2].toGenericDict().at("same").toTensor();
  EXPECT_TRUE(whole.is_alias_of(part));
  EXPECT_TRUE(whole.is_alias_of(same));
  EXPECT_EQ(part.storage_offset(), 1);
}

TEST_F(Call, AliasesAmongInputsStayAliases) {
  at::Tensor x = client.tensor({10}).fill_(1);
  client.probeValue("identity", {x});
  const Answer answer = client.ask(ipc::Operation::kCallObject, [&](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(1).pack_array(2);
    writer.addValue(std::string("identity"));
    c10::List<at::Tensor> both;
    both.push_back(x);
    both.push_back(x.slice(0, 5));
    writer.addValue(both);
    writer.packer().pack_map(0);
  });
  ASSERT_EQ(answer.status, Status::kValue);
  EXPECT_EQ(answer.storages.size(), 1u);
  const auto list = answer.value.toTensorVector();
  EXPECT_EQ(list[1].data_ptr(), static_cast<float*>(x.data_ptr()) + 5);
}

TEST_F(Call, SmallTensorsTravelInline) {
  const Answer answer = client.probe("add_one", {at::ones({4})});
  ASSERT_EQ(answer.status, Status::kValue);
  EXPECT_TRUE(answer.value.toTensor().eq(2).all().item<bool>());
}

TEST_F(Call, NamedArgumentsAndNumbers) {
  at::Tensor x = client.tensor({4}).fill_(1);
  const Answer answer = client.probe("sums", {x}, {{"scale", 2.0}, {"shift", 0.5}});
  EXPECT_EQ(answer.value.toDouble(), 8.5);
}

TEST_F(Call, HeapMemoryIsCopiedOnceAndCounted) {
  const Answer answer = client.probe("from_bytes", {100'000});
  ASSERT_EQ(answer.status, Status::kValue);
  EXPECT_EQ(answer.storages[0].kind, Kind::kLent);
  EXPECT_EQ(answer.copies.at(Reason::kResultOutsideSharedMemory), 400'000u);
  EXPECT_EQ(answer.value.toTensor()[99'999].item<float>(), 99'999);
}

TEST_F(Call, AnArrayThatNumpyAllocatesIsLentWithoutACopy) {
  const Answer answer = client.probe("from_numpy", {100'000});
  ASSERT_EQ(answer.status, Status::kValue);
  EXPECT_EQ(answer.storages[0].kind, Kind::kLent);
  EXPECT_EQ(answer.copied(), 0u);
  EXPECT_EQ(answer.value.toTensor()[99'999].item<float>(), 99'999);
}

TEST_F(Call, OnlyThePartThatIsReturnedIsCopied) {
  client.probeValue("slice_of_large", {1'000'000});
  const Answer answer = client.probe("slice_of_large", {8'000'000});
  ASSERT_EQ(answer.status, Status::kValue);
  EXPECT_LE(answer.copied(), 64u * 1024);
}

TEST_F(Call, LongAnswersAndLongCallsTravelAsBlobs) {
  EXPECT_EQ(client.probeValue("text", {100'000}).toStringRef().size(), 100'000u);
  const std::string text(50'000, 'q');
  EXPECT_EQ(client.probeValue("identity", {text}).toStringRef(), text);
  for (int i = 0; i < 500; ++i) client.probeValue("text", {100'000});
}

TEST_F(Call, CallersModesAreInForce) {
  const auto modes = [&](uint32_t flags) {
    const auto elements = client.probe("modes", {}, {}, flags).value.toTupleRef().elements().vec();
    return std::pair(elements[0].toBool(), elements[1].toBool());
  };
  EXPECT_EQ(modes(ipc::kGradEnabled), std::pair(true, false));
  EXPECT_EQ(modes(0), std::pair(false, false));
  EXPECT_EQ(modes(ipc::kInferenceMode), std::pair(false, true));
  EXPECT_EQ(modes(ipc::kGradEnabled), std::pair(true, false));
}

TEST_F(Call, ResultsAreDetached) {
  at::Tensor x = client.tensor({1000}).fill_(1);
  x.set_requires_grad(true);
  const Answer answer = client.probe("requires_grad", {x});
  const auto elements = answer.value.toTupleRef().elements().vec();
  EXPECT_TRUE(elements[0].toBool());
  EXPECT_FALSE(elements[1].toTensor().requires_grad());
}

TEST_F(Call, PrintReachesStandardOutputAtOnce) {
  client.probeValue("say", {std::string("hello from a worker")});
  sharedZygote().output("hello from a worker\n");
  client.probe("say", {std::string("no newline")}, {{"end", std::string("")}});
  sharedZygote().output("no newline");
}

// ---- errors -------------------------------------------------------------------------------------

TEST_F(Call, PythonErrorsComeWithTypeMessageAndTraceback) {
  at::Tensor x = client.tensor({1000});
  const Answer answer = client.probe("fail", {x});
  ASSERT_EQ(answer.status, Status::kPythonError);
  EXPECT_EQ(answer.error[0], "ValueError");
  EXPECT_EQ(answer.error[1], "no such luck: \u00e9");
  EXPECT_NE(answer.error[2].find("Traceback (most recent call last)"), std::string::npos);
  EXPECT_NE(answer.error[2].find("raise ValueError"), std::string::npos) << answer.error[2];
  EXPECT_EQ(answer.error[3].rfind("ValueError: no such luck: \u00e9\n\nAt:\n  ", 0), 0u)
      << answer.error[3];
  EXPECT_NE(answer.error[3].find("): fail\n"), std::string::npos) << answer.error[3];
  // The frames that held the input are gone.
  EXPECT_EQ(client.inputLeasesOut(), 0u);
}

TEST_F(Call, SystemExitIsRefusedAndTheWorkerLivesOn) {
  const Answer answer = client.probe("leave", {3});
  ASSERT_EQ(answer.status, Status::kRefused);
  EXPECT_EQ(answer.refusal, ipc::RefusalKind::kPythonExit);
  EXPECT_NE(answer.reason.find("exit code 3"), std::string::npos) << answer.reason;
  EXPECT_TRUE(client.probeValue("nothing").isNone());
}

TEST_F(Call, EndlessRecursionIsAPythonError) {
  const Answer answer = client.probe("recurse");
  ASSERT_EQ(answer.status, Status::kPythonError);
  EXPECT_EQ(answer.error[0], "RecursionError");
}

TEST_F(Call, KeyboardInterruptIsAnOrdinaryError) {
  EXPECT_EQ(client.probe("interrupt").error[0], "KeyboardInterrupt");
  EXPECT_TRUE(client.probeValue("nothing").isNone());
}

TEST_F(Call, UnsupportedResultsAreRefusedInTheTracersWords) {
  const Answer list = client.probe("mixed");
  ASSERT_EQ(list.status, Status::kRefused);
  EXPECT_EQ(list.refusal, ipc::RefusalKind::kUnsupportedValue);
  EXPECT_NE(list.reason.find("Tracer cannot infer type of [1, 'two']"), std::string::npos)
      << list.reason;
  const Answer object = client.probe("object_of_a_class");
  ASSERT_EQ(object.status, Status::kRefused);
  EXPECT_NE(object.reason.find("got value of type NotForTheWorld"), std::string::npos)
      << object.reason;
}

TEST_F(Call, UnknownObjectsAreRefused) {
  const Answer answer = client.ask(ipc::Operation::kCallObject, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(99).pack_array(0);
    writer.packer().pack_map(0);
  });
  ASSERT_EQ(answer.status, Status::kRefused);
  EXPECT_EQ(answer.refusal, ipc::RefusalKind::kObjectUnloaded);
}

TEST_F(Call, GarbageIsRefused) {
  ipc::OutgoingCall call;
  call.operation = ipc::Operation::kCallObject;
  const std::array<std::byte, 3> garbage = {std::byte{0xc1}, std::byte{1}, std::byte{2}};
  call.payload.inlineBytes = garbage;
  client.end().publish(call);
  ipc::ReceivedCompletion completion;
  waitUntil([&] { return client.end().peek(completion) == ipc::Received::kOne; }, "an answer");
  client.end().consumed();
  EXPECT_EQ(static_cast<Status>(completion.status), Status::kRefused);
  EXPECT_TRUE(client.probeValue("nothing").isNone());
}

TEST_F(Call, OneThatWasRecalledBeforeItStartedDoesNotRun) {
  const std::string gate =
      std::filesystem::path(probePackage()).parent_path().string() + "/gate-of-recall";
  const uint64_t first = client.publishProbe("wait_for", {gate});
  waitUntil([&] { return client.end().hasStarted(first); }, "the first call's start");
  at::Tensor x = client.tensor({10}).fill_(0);
  const uint64_t second = client.publishProbe("add_in_place", {x});
  EXPECT_TRUE(client.end().recall(second));
  const uint64_t completed = client.end().completedCalls();
  const uint64_t served = client.end().peer().servedCalls.load();
  std::ofstream(gate).put('x');
  EXPECT_EQ(client.receive(first).status, Status::kValue);
  EXPECT_EQ(client.receive(second).status, Status::kWithdrawn);
  EXPECT_EQ(client.end().completedCalls(), completed + 1) << "the second call did not run";
  EXPECT_EQ(client.end().peer().servedCalls.load(), served + 1);
  EXPECT_TRUE(x.eq(0).all().item<bool>());
  EXPECT_EQ(client.inputLeasesOut(), 0u);
}

TEST_F(Call, IsNotDelayedByNotificationsOfAnUnloadedPackage) {
  const std::string gate =
      std::filesystem::path(probePackage()).parent_path().string() + "/gate-of-unloading";
  const uint64_t first = client.publishProbe("wait_for", {gate});
  waitUntil([&] { return client.end().hasStarted(first); }, "the first call's start");
  const auto define = [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(4).pack(2).pack(1);
    writer.packer().pack(std::string("torch.package"));
    writer.packer().pack(std::string(R"(["model","model.pkl"])"));
  };
  for (int i = 0; i < 20; ++i) client.publish(ipc::Operation::kDefineObject, define, ipc::kNoReply);
  worker->send(ipc::UnmapPackage{1, {1}});
  std::ofstream(gate).put('x');
  EXPECT_EQ(client.receive(first).status, Status::kValue);
  EXPECT_EQ(client
                .ask(ipc::Operation::kPing,
                     [](ipc::PayloadWriter& writer) { writer.packer().pack_array(0); })
                .status,
            Status::kValue)
      << "the worker waited 5 seconds for each";
  // A number may be used again, and the package may arrive later than a call that names it.
  const uint64_t last = client.publish(ipc::Operation::kDefineObject, define);
  client.loadPackage(probePackage());
  EXPECT_EQ(client.receive(last).status, Status::kValue);
}

TEST_F(Call, WithAnUnknownModelFormatIsAnErrorWithTheFormatsThatThereAre) {
  const auto define = [&](const std::string& format) {
    return client.ask(ipc::Operation::kDefineObject, [&](ipc::PayloadWriter& writer) {
      writer.packer().pack_array(4).pack(2).pack(1).pack(format).pack(std::string());
    });
  };
  const Answer unknown = define("no.such\nformat");
  ASSERT_EQ(unknown.status, Status::kPythonError);
  EXPECT_EQ(unknown.error[0], "ValueError");
  for (const char* part : {"'no.such\\nformat'", "torch.package", "torchscript", "onnx"}) {
    EXPECT_NE(unknown.error[1].find(part), std::string::npos) << unknown.error[1];
  }
  EXPECT_EQ(define("\xff").status, Status::kPythonError);
  const Answer tooLong = define(std::string(ipc::kMostFormatNameBytes + 1, 'x'));
  ASSERT_EQ(tooLong.status, Status::kRefused);
  EXPECT_EQ(tooLong.refusal, ipc::RefusalKind::kBadRequest);
  EXPECT_NE(tooLong.reason.find("65 bytes"), std::string::npos) << tooLong.reason;
  EXPECT_EQ(client.probe("identity", {1}).status, Status::kValue);
}

TEST_F(Call, InputOfASegmentThatIsNotMappedYetIsWaitedFor) {
  // The message is in the socket, but the doorbell was not rung.
  base::Fd segment = ipc::createMemoryObject("late", 1 << 20);
  worker->control.send(ipc::MapInputSegment{1, 7, 1 << 20}, {segment.get()});
  ipc::OutgoingCall call;
  call.operation = ipc::Operation::kPing;
  call.payload.blobSegment = base::SegmentId(7);
  call.payload.blobBytes = 3;
  ipc::Mapping mapping =
      ipc::mapShared(segment, 0, 1 << 20, ipc::Access::kReadWrite, ipc::Prefault::kNo);
  mapping.data()[0] = std::byte{0x92};
  mapping.data()[1] = std::byte{0x90};
  mapping.data()[2] = std::byte{0x90};
  client.end().publish(call);
  ipc::ReceivedCompletion completion;
  waitUntil([&] { return client.end().peek(completion) == ipc::Received::kOne; }, "an answer");
  EXPECT_EQ(static_cast<Status>(completion.status), Status::kValue);
}

TEST_F(Call, LackOfAddressSpaceForAnInputIsAMemoryError) {
  if (kUnderAddressSanitizer) {
    GTEST_SKIP() << "the address sanitizer ends a process that has no address space";
  }
  // The model keeps the pages at the input's address: the input needs a window at another one.
  const at::Tensor x = client.tensor({100'000}).fill_(1);
  ASSERT_EQ(client.probe("keep", {x}).status, Status::kValue);
  rlimit before{};
  rlimit low{1, 0};
  ASSERT_EQ(::prlimit(worker->pid, RLIMIT_AS, nullptr, &before), 0);
  low.rlim_max = before.rlim_max;
  ASSERT_EQ(::prlimit(worker->pid, RLIMIT_AS, &low, nullptr), 0);
  const uint64_t completed = client.end().completedCalls();
  const Answer refused = client.probe("add_in_place", {x});
  ASSERT_EQ(::prlimit(worker->pid, RLIMIT_AS, &before, nullptr), 0);
  ASSERT_EQ(refused.status, Status::kPythonError);
  EXPECT_EQ(refused.error[0], "MemoryError");
  EXPECT_EQ(client.end().completedCalls(), completed) << "the call did not run";
  EXPECT_NE(refused.error[1].find("mmap"), std::string::npos) << refused.error[1];
  EXPECT_EQ(client.inputLeasesOut(), 0u);
  EXPECT_EQ(client.probe("add_in_place", {x}).status, Status::kValue);
}

TEST_F(Call, IsServedAfterALackOfAddressSpaceForAnotherClient) {
  if (kUnderAddressSanitizer) {
    GTEST_SKIP() << "the address sanitizer ends a process that has no address space";
  }
  // The same as `ulimit -v`, which a worker inherits from its zygote.
  ZygoteProcess zygote;
  std::ifstream statm("/proc/" + std::to_string(zygote.pid()) + "/statm");
  rlim_t pages = 0;
  ASSERT_TRUE(statm >> pages);
  rlimit low{};
  ASSERT_EQ(::prlimit(zygote.pid(), RLIMIT_AS, nullptr, &low), 0);
  low.rlim_cur = pages * ipc::kPageBytes + (size_t{1} << 30);
  ASSERT_EQ(::prlimit(zygote.pid(), RLIMIT_AS, &low, nullptr), 0);
  const auto fresh = zygote.fork(1);
  std::vector<std::unique_ptr<TestClient>> clients;
  const auto allAreServed = [&] {
    for (const auto& each : clients) {
      const auto nothing = [](auto& writer) { writer.packer().pack_array(0); };
      EXPECT_EQ(each->ask(ipc::Operation::kPing, nothing).status, Status::kValue);
    }
  };
  // The worker answers that it has no channel for the client, and the constructor throws.
  bool refused = false;
  while (!refused && clients.size() < 1000) {
    try {
      clients.push_back(std::make_unique<TestClient>(*fresh));
    } catch (const ipc::ProtocolError&) {
      refused = true;
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_GE(clients.size(), 8u);
  EXPECT_TRUE(fresh->alive()) << fresh->readCrashLog();
  allAreServed();
  EXPECT_NE(fresh->readCrashLog().find("no room for another client"), std::string::npos)
      << fresh->readCrashLog();
  constexpr uint64_t kLarge = uint64_t{2} << 30;
  const base::Fd large = ipc::createMemoryObject("input", kLarge);
  fresh->send(ipc::MapInputSegment{/*client=*/1, /*segment=*/2, kLarge}, {large.get()});
  allAreServed();
  EXPECT_TRUE(fresh->alive()) << fresh->readCrashLog();
  EXPECT_NE(fresh->readCrashLog().find("no room for an input segment"), std::string::npos)
      << fresh->readCrashLog();
}

// ---- the arena ----------------------------------------------------------------------------------

TEST_F(Call, AMissUsesTheHeapAndAsksForRoom) {
  // 16 MB do not fit into 8. The call does not wait for room: its result is copied when room comes.
  const uint64_t sequence = client.publishProbe("zeros", {4'000'000});
  const auto request = ipc::decodeMessage<ipc::RequestOutputSegment>(worker->receive());
  EXPECT_GE(request.bytes, 16'000'000u);
  client.grantOutputSegment(32 << 20);
  const Answer answer = client.receive(sequence);
  ASSERT_EQ(answer.status, Status::kValue);
  EXPECT_EQ(answer.copies.at(Reason::kResultOutsideSharedMemory), 16'000'000u);
  const Answer second = client.probe("zeros", {4'000'000});
  EXPECT_EQ(second.copied(), 0u);
}

TEST_F(Call, FullArenaIsRefusedWithTheNameOfTheSetting) {
  const uint64_t sequence = client.publishProbe("zeros", {4'000'000});
  ipc::decodeMessage<ipc::RequestOutputSegment>(worker->receive());
  worker->send(ipc::RefuseOutputSegment{1, "the limit is reached", false, false, 2000});
  const Answer answer = client.receive(sequence);
  ASSERT_EQ(answer.status, Status::kRefused);
  EXPECT_EQ(answer.refusal, ipc::RefusalKind::kArenaFull);
  EXPECT_NE(answer.reason.find("the limit is reached"), std::string::npos) << answer.reason;
  EXPECT_NE(answer.reason.find("ISOPOOL_OUTPUT_ARENA_LIMIT"), std::string::npos);
  EXPECT_TRUE(client.probeValue("nothing").isNone());
}

// Results of 64 GiB and more use up the address space, too. A segment that is granted then would be
// kept and never used.
TEST(OutputArena, AsksForNoMoreOnceItsAddressSpaceIsUsedUp) {
  if (kUnderAddressSanitizer) GTEST_SKIP() << "the address sanitizer takes all address space";
  constexpr const char* kLimit = "ulimit -v 12000000; exec \"$@\"";
  ZygoteProcess zygote({}, {"/bin/sh", "-c", kLimit, "sh"});
  auto worker = zygote.fork(1);
  TestClient client(*worker);
  client.defineProbe();
  // More than the quarter of the address space that such a worker reserves. Made before the worker
  // asks: it waits for two seconds.
  constexpr uint64_t kTooMuch = uint64_t{4} << 30;
  const base::Fd object = ipc::createMemoryObject("output", kTooMuch);
  const uint64_t sequence = client.publishProbe("zeros", {4'000'000});
  ipc::decodeMessage<ipc::RequestOutputSegment>(worker->receive());
  worker->send(ipc::AddOutputSegment{1, 2, kTooMuch}, {object.get()});
  for (const Answer& answer : {client.receive(sequence), client.probe("zeros", {4'000'000})}) {
    ASSERT_EQ(answer.status, Status::kRefused);
    EXPECT_EQ(answer.refusal, ipc::RefusalKind::kArenaFull);
    EXPECT_NE(answer.reason.find("its address space for them"), std::string::npos) << answer.reason;
    EXPECT_EQ(answer.reason.find("ISOPOOL_OUTPUT_ARENA_LIMIT"), std::string::npos);
  }
  EXPECT_FALSE(worker->hasMessage(milliseconds(0)));
  EXPECT_EQ(client.probe("zeros", {100'000}).copied(), 0u);
}

TEST_F(Call, AnErrorOfAnyLengthIsAnsweredThoughTheArenaIsFull) {
  TestClient other(*worker, 64 << 10);
  other.defineProbe();
  const Answer held = other.probe("zeros", {15'000});
  ASSERT_EQ(held.status, Status::kValue);
  const uint64_t sequence = other.publishProbe(
      "run", {"raise type('\u00e9' * 30000, (Exception,), {})('\u00e9' * 30000)"});
  const auto request = ipc::decodeMessage<ipc::RequestOutputSegment>(worker->receive());
  worker->send(
      ipc::RefuseOutputSegment{request.client, "the limit is reached", false, false, 2000});
  const Answer answer = other.receive(sequence);
  ASSERT_EQ(answer.status, Status::kPythonError);
  EXPECT_EQ(answer.error[0].substr(0, 2), "\xc3\xa9");
  EXPECT_EQ(answer.error[0].size() % 2, 0u) << "half a character";
  EXPECT_EQ(answer.error[1].substr(0, 2), "\xc3\xa9") << answer.error[1].substr(0, 200);
  EXPECT_TRUE(other.probeValue("nothing").isNone());
}

TEST_F(Call, RefusedSegmentsTakeAlmostNoMemory) {
  const auto resident = [&] {
    return client
        .probeValue("run", {"result = int(open('/proc/self/statm').read().split()[1]) * 4096"})
        .toInt();
  };
  const int64_t before = resident();
  for (uint32_t segment = 10; segment < 20'010; ++segment) {
    worker->send(ipc::RefuseInputSegment{1, segment, std::string(4000, 'x') + " is the limit"});
    if (segment % 100 == 0) static_cast<void>(client.probeValue("nothing"));
  }
  EXPECT_LT(resident() - before, 16 << 20) << "80 MB of text were sent";
}

TEST_F(Call, WithoutALeaseAResultTravelsInsideTheAnswer) {
  std::vector<Answer> held;
  for (int i = 0; i < 3; ++i) {
    client.grantOutputSegment(16 << 20);
    held.push_back(client.probe("many", {1365}));
    ASSERT_EQ(held.back().status, Status::kValue);
  }
  const Answer last = client.probe("many", {10});
  ASSERT_EQ(last.status, Status::kValue);
  EXPECT_EQ(last.copies.at(Reason::kNoLease), 9u * 4096);
  EXPECT_EQ(last.value.toTensorVector()[9][0].item<float>(), 9);
}

// ---- packages -----------------------------------------------------------------------------------

TEST_F(Call, AStoredTensorReturnsAsAPlaceInThePackage) {
  const Answer answer = client.probe("return_weight");
  ASSERT_EQ(answer.status, Status::kValue);
  ASSERT_EQ(answer.storages[0].kind, Kind::kPackage);
  EXPECT_EQ(answer.storages[0].bytes, 65536u * 4);
  EXPECT_EQ(answer.copied(), 0u);
}

TEST_F(Call, AWrittenWeightIsThisWorkersAlone) {
  auto other = sharedZygote().fork(2);
  TestClient second(*other);
  second.defineProbe();
  const double sum = second.probeValue("weight_sum").toDouble();
  client.probeValue("write_weight");
  EXPECT_EQ(client.probeValue("weight_sum").toDouble(), 0);
  EXPECT_EQ(second.probeValue("weight_sum").toDouble(), sum);
  const Answer answer = client.probe("return_weight");
  EXPECT_EQ(answer.storages[0].kind, Kind::kLent);
  EXPECT_EQ(answer.copies.at(Reason::kPackageWritten), 65536u * 4);
}

// ---- handles ------------------------------------------------------------------------------------

TEST_F(Call, HandlesReachAttributesAndCallThem) {
  EXPECT_EQ(client
                .ask(ipc::Operation::kGlobal,
                     [](ipc::PayloadWriter& writer) {
                       writer.packer().pack_array(3).pack(std::string("math"));
                       writer.packer().pack(std::string("hypot")).pack(1);
                     })
                .status,
            Status::kValue);
  client.ask(ipc::Operation::kCallHandle, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(4).pack(1).pack(2).pack_array(2);
    writer.addValue(3.0);
    writer.addValue(4.0);
    writer.packer().pack_map(0);
  });
  const Answer value = client.ask(ipc::Operation::kToValue, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(1).pack(2);
  });
  EXPECT_EQ(value.value.toDouble(), 5);
  const Answer has = client.ask(ipc::Operation::kHasAttribute, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(2).pack(2).pack(std::string("is_integer"));
  });
  EXPECT_TRUE(has.value.toBool());
  client.publish(
      ipc::Operation::kReleaseHandles,
      [](ipc::PayloadWriter& writer) { writer.packer().pack_array(2).pack(1).pack(2); },
      ipc::kNoReply);
  const Answer gone = client.ask(ipc::Operation::kToValue, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(1).pack(2);
  });
  EXPECT_EQ(gone.refusal, ipc::RefusalKind::kBadRequest);
}

TEST_F(Call, TellsWhichModulesAreMissing) {
  const Answer answer = client.ask(ipc::Operation::kFindModules, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(4).pack(std::string("os.path")).pack(std::string("no_such.thing"));
    writer.packer().pack(std::string("torch.nn")).pack(std::string("nor_this"));
  });
  ASSERT_EQ(answer.status, Status::kValue);
  const auto names = answer.value.toListRef();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].toStringRef(), "no_such.thing");
  EXPECT_EQ(names[1].toStringRef(), "nor_this");
}

TEST_F(Call, KnowsItsSlot) {
  client.ask(ipc::Operation::kAssumeSlot,
             [](ipc::PayloadWriter& writer) { writer.packer().pack_array(1).pack(5); });
  client.ask(ipc::Operation::kGlobal, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(std::string("torch.version"));
    writer.packer().pack(std::string("interp")).pack(1);
  });
  const Answer answer = client.ask(ipc::Operation::kToValue, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(1).pack(1);
  });
  EXPECT_EQ(answer.value.toInt(), 5);
}

// ---- other processes and threads ----------------------------------------------------------------

TEST_F(Call, AChildThatUserCodeForksFindsTheRuntimeDead) {
  EXPECT_EQ(client.probeValue("fork_and_ask").toInt(), 7);
  at::Tensor x = client.tensor({1000}).fill_(1);
  EXPECT_TRUE(client.probeValue("add_one", {x}).toTensor().eq(2).all().item<bool>());
}

TEST_F(Call, AForkedChildThatReturnsAnswersNothing) {
  EXPECT_EQ(client.probeValue("fork_and_return", {std::string()}).toStringRef(),
            "the parent saw 1");
  EXPECT_TRUE(client.probeValue("nothing").isNone());
}

TEST_F(Call, AForkedChildThatReturnsFromAnAttributeAnswersNothing) {
  client.ask(ipc::Operation::kObjectHandle,
             [](ipc::PayloadWriter& writer) { writer.packer().pack_array(2).pack(1).pack(1); });
  client.ask(ipc::Operation::kAttribute, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(3).pack(1).pack(std::string("forked")).pack(2);
  });
  const Answer seen = client.ask(ipc::Operation::kToValue, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(1).pack(2);
  });
  EXPECT_EQ(seen.value.toStringRef(), "the parent saw 1");
}

TEST_F(Call, ThreadsOfUserCodeRunWhileTheWorkerIsIdle) {
  client.probeValue("start_thread");
  const int64_t before = client.probeValue("tick_count").toInt();
  int64_t now = before;
  waitUntil(
      [&] {
        now = client.probeValue("tick_count").toInt();
        return now > before + 3;
      },
      "ticks");
}

}  // namespace isopool::tests

// SPDX-License-Identifier: BSD-3-Clause
// A client's channel whose worker answers one call with arbitrary data: any slot, any payload in it
// or in the output arena, any storages, any kind of completion. The library's own code handles the
// answer from the ring to the value. Input: Lie, then the bytes of the payload.
#include <ATen/ATen.h>
#include <linux/futex.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "client/models/archive_file.h"
#include "client/transport/input_arena.h"
#include "client/transport/worker_link.h"
#include "client/transport/worker_memory.h"
#include "isopool/errors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/guarded_memory.h"
#include "tests/fuzz/tensor_values.h"

namespace isopool::fuzz {
namespace {

constexpr base::Epoch kEpoch(7);
constexpr base::SegmentId kSegment(1);
constexpr size_t kArenaBytes = size_t{64} << 10;

/// What the worker writes besides the payload. Each bit of `lies` enables one false field.
struct Lie {
  uint8_t lies;
  uint8_t status;
  uint16_t blobOffset;
};
enum : uint8_t {
  kInBlob = 1,        // the payload lies in the arena
  kOwnPlace = 2,      // 24 bytes follow: the PayloadPlace
  kOwnSequence = 4,   // 8 bytes follow
  kOwnEpoch = 8,      // 8 bytes follow
  kOwnTail = 16,      // 4 bytes follow
  kStarted = 32,      // the call is marked as started
  kOwnHead = 64,      // 4 bytes follow: the number of taken calls
  kDiesAtOnce = 128,  // the worker is dead before the call
};

/// Memory of one worker, kept for all inputs.
struct Memory {
  GuardedMemory client{ipc::kClientControlBytes};
  GuardedMemory worker{ipc::kWorkerControlBytes};
  base::Fd output = ipc::createMemoryObject("output", kArenaBytes);
  client::NoBlock why;
  c10::Storage shared = *client::InputArena::instance().makeStorage(256, why);
  std::shared_ptr<client::ArchiveFile> package;

  Memory() {
    const std::vector<char> stored(4096, 'x');
    package = client::ArchiveFile::copyOf("stored", stored.data(), stored.size());
  }
};

void answer(Memory& memory, std::byte* arena, InputReader& input) {
  auto& control = *reinterpret_cast<ipc::WorkerControl*>(memory.worker.data());
  const auto lie = input.take<Lie>();
  ipc::CompletionSlot& slot = control.slots[0];
  slot.sequence = (lie.lies & kOwnSequence) != 0 ? input.take<uint64_t>() : 1;
  slot.epoch = (lie.lies & kOwnEpoch) != 0 ? input.take<uint64_t>() : kEpoch.value;
  constexpr uint8_t kWithReport = 0x80;
  slot.status = lie.status & ~kWithReport;
  if ((lie.status & kWithReport) != 0) slot.status |= ipc::kInputReportFlag;
  if ((lie.lies & kOwnPlace) != 0) slot.payload = input.take<ipc::PayloadPlace>();
  control.completionTail = (lie.lies & kOwnTail) != 0 ? input.take<uint32_t>() : 1;
  control.submissionHead = (lie.lies & kOwnHead) != 0 ? input.take<uint32_t>() : 0;
  if ((lie.lies & kStarted) != 0) control.startedSequence = 1;
  const bool inBlob = (lie.lies & kInBlob) != 0;
  const size_t offset = lie.blobOffset % kArenaBytes;
  const size_t bytes = inBlob ? input.takeInto(arena + offset, kArenaBytes - offset)
                              : input.takeInto(slot.bytes.data(), slot.bytes.size());
  if ((lie.lies & kOwnPlace) != 0) return;
  if (inBlob) {
    slot.payload = {0, kSegment.value, offset, bytes};
  } else {
    slot.payload = {static_cast<uint32_t>(bytes), 0, 0, 0};
  }
}

void die(Memory& memory) {
  auto& control = *reinterpret_cast<ipc::WorkerControl*>(memory.worker.data());
  reinterpret_cast<ipc::SharedWord<uint32_t>&>(control.life).fetch_or(FUTEX_OWNER_DIED);
}

void look(const at::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    const client::LentBlock* block = client::lentBlockOf(value.toTensor().storage());
    require(block == nullptr || block->offset % ipc::kPageBytes == 0, "a block is whole pages");
  }
  touchTensors(value);
}

void call(Memory& memory, const uint8_t* data, size_t size) {
  memory.client.clear();
  memory.worker.clear();
  auto lent = std::make_shared<client::WorkerMemory>(kEpoch, memory.client.view(),
                                                     memory.worker.view(), ipc::Mapping());
  ipc::Mapping arena =
      ipc::mapShared(memory.output, 0, kArenaBytes, ipc::Access::kReadWrite, ipc::Prefault::kNo);
  std::byte* const arenaData = arena.data();
  lent->addSegment(kSegment, std::move(arena));
  lent->expectNoMoreSegments();
  // The worker's process is this one; without a pidfd the library cannot kill it.
  const auto channel =
      std::make_shared<client::WorkerLink>(lent, ::getpid(), base::Fd(), base::Fd(),
                                           /*livenessWordWorks=*/true, /*connection=*/1);
  bool killed = false;
  const auto kill = [&] {
    killed = true;
    die(memory);
  };
  channel->share({[&](const std::string&) { kill(); }, [&](uint64_t) { kill(); }, 0});
  InputReader input(data, size);
  const bool dead = size > 0 && (data[0] & kDiesAtOnce) != 0;
  answer(memory, arenaData, input);
  if (dead) die(memory);

  // A storage of the client that the worker may echo.
  const at::Tensor tensor = at::empty({0}, at::kByte).set_(memory.shared, 0, {256}, {1});
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(1);
  draft.writer.addValue(tensor);
  const auto& control = *reinterpret_cast<ipc::WorkerControl*>(memory.worker.data());
  // No process would wake the caller: without an answer, the deadline has already passed.
  const bool answers = control.completionTail != 0 && control.submissionHead == 0;
  const auto deadline = client::Clock::now() + std::chrono::seconds(answers ? 5 : 0);
  const auto begin = client::Clock::now();
  try {
    client::Answer taken = channel->exchange(ipc::Operation::kCallObject, draft, deadline);
    if (taken.outcome() == client::RequestOutcome::kAnswered) look(taken.take());
  } catch (const Error&) {
    // The worker's error, or the error for an invalid answer.
  }
  require(client::Clock::now() - begin < std::chrono::seconds(1), "a false answer costs no time");
  require(!killed || channel->workerDied(), "a worker with a false answer is killed");
}

}  // namespace
}  // namespace isopool::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* memory = new isopool::fuzz::Memory;
  isopool::fuzz::call(*memory, data, size);
  return 0;
}

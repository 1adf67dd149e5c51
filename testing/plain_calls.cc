// SPDX-License-Identifier: BSD-3-Clause
#include "testing/plain_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

namespace isopool::tests {

namespace {

using namespace isopool::base;
using namespace isopool::ipc;

// Copies of constants of ipc/tensor/, which needs torch: the tags and kinds of value_codec.h.
constexpr uint32_t kListTag = 1;
constexpr uint32_t kStringType = 5;
constexpr int8_t kTensorExtension = 1;
constexpr uint32_t kInlineStorage = 0;
constexpr uint32_t kLentStorage = 1;
constexpr uint32_t kHomeStorage = 2;
constexpr size_t kLongestInline = 512;
constexpr size_t kArenaAddresses = size_t{1} << 30;

const msgpack::object& at(const msgpack::object& array, size_t index) {
  if (array.type != msgpack::type::ARRAY || index >= array.via.array.size) {
    throw std::runtime_error("a payload lacks an element");
  }
  return array.via.array.ptr[index];
}

// The call's payload: its body and its storages.
msgpack::object_handle parse(const ReceivedCall& call) {
  return msgpack::unpack(reinterpret_cast<const char*>(call.bytes), call.payload.inlineBytes);
}

// An unfinished answer: pack its body, then its storages.
struct PlainAnswer {
  PlainAnswer() { packer.pack_array(2); }
  msgpack::sbuffer bytes;
  msgpack::packer<msgpack::sbuffer> packer{bytes};
};

// One write(), so that a death leaves a whole record or none.
void noteEffect(const std::string& path, uint64_t nonce) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const uint64_t effect[2] = {nonce, static_cast<uint64_t>(::getpid())};
  if (!file.valid() || ::write(file.get(), effect, sizeof effect) != sizeof effect) {
    throw std::runtime_error("the effect could not be written");
  }
}

void pass(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

void takeMemoryUntilThereIsNone(uint64_t mebibytes) {
  std::vector<std::unique_ptr<char[]>> taken;
  for (uint64_t i = 0; i < mebibytes; ++i) {
    taken.emplace_back(new char[1 << 20]);
    std::memset(taken.back().get(), 1, 1 << 20);
  }
  throw std::bad_alloc();
}

// Does what the call requests before its result: dies, takes time or throws.
void act(const std::string& deed, uint64_t amount) {
  if (deed == "exit") ::_exit(static_cast<int>(amount));
  if (deed == "segv") {
    ::signal(SIGSEGV, SIG_DFL);
    *reinterpret_cast<volatile int*>(amount % 8) = 1;
  }
  if (deed == "abort") ::abort();
  if (deed == "spin") pass(std::chrono::milliseconds(amount));
  if (deed == "wait") ::usleep(static_cast<useconds_t>(amount * 1000));
  if (deed == "raise") throw std::invalid_argument("asked for");
  if (deed == "allocate") takeMemoryUntilThereIsNone(amount);
}

}  // namespace

PlainCalls::PlainCalls(WorkerEnd& end, base::Fd output, size_t outputBytes)
    : end_(end), output_(kArenaAddresses), lent_(end.peerReturns()) {
  output_.addSegment(base::SegmentId(1), std::move(output), outputBytes, Prefault::kNo);
}

void PlainCalls::addInputSegment(uint32_t segment, Mapping memory) {
  inputs_[segment] = std::move(memory);
}

bool PlainCalls::resolvable(const ReceivedCall& call) const {
  const msgpack::object_handle payload = parse(call);
  for (const msgpack::object& storage : at(payload.get(), 1).via.array) {
    if (at(storage, 0).as<uint32_t>() != kLentStorage) continue;
    if (inputs_.count(at(storage, 1).as<uint32_t>()) == 0) return false;
  }
  return true;
}

void PlainCalls::run(const ReceivedCall& call) {
  const msgpack::object_handle payload = parse(call);
  const msgpack::object& body = at(payload.get(), 0);
  const msgpack::object& storages = at(payload.get(), 1);
  try {
    switch (static_cast<Operation>(call.operation)) {
      case Operation::kAssumeSlot:
      case Operation::kRegisterModule:
      case Operation::kExtendPath:
      case Operation::kReleaseHandles:
      // Not checked: the plain worker has no handles.
      case Operation::kGlobal:
      case Operation::kObjectHandle:
      case Operation::kCallHandle:
      case Operation::kNext:
        return answerNothing(call);
      case Operation::kDefineObject:
        objects_.insert(at(body, 0).as<uint64_t>());
        return answerNothing(call);
      case Operation::kForgetObject:
        objects_.erase(at(body, 0).as<uint64_t>());
        return answerNothing(call);
      case Operation::kFindModules:
        return answerNoModuleMissing(call);
      case Operation::kCallObject:
        return callObject(call, body, storages);
      default:
        return refuse(call, RefusalKind::kBadRequest, "a plain worker can't do this");
    }
  } catch (const std::exception& error) {
    giveBack(storages);
    answerError(call, error.what());
  }
}

// [object, [nonce, effects, deed, amount, x], {}] -> 3 * x + nonce
void PlainCalls::callObject(const ReceivedCall& call, const msgpack::object& body,
                            const msgpack::object& storages) {
  lent_.collect([this](const void* block) { output_.dropReference(block); });
  if (objects_.count(at(body, 0).as<uint64_t>()) == 0) {
    giveBack(storages);
    return refuse(call, RefusalKind::kObjectUnloaded, "the plain worker has no such object");
  }
  const msgpack::object& arguments = at(body, 1);
  const auto nonce = at(arguments, 0).as<uint64_t>();
  const auto effects = at(arguments, 1).as<std::string>();
  const auto deed = at(arguments, 2).as<std::string>();
  const auto amount = at(arguments, 3).as<uint64_t>();
  const msgpack::object& tensor = at(arguments, 4);
  if (tensor.type != msgpack::type::EXT || tensor.via.ext.type() != kTensorExtension) {
    throw std::runtime_error("the last argument is not a tensor");
  }
  const Numbers x = numbersOf(at(storages, 0));
  if (deed != "unlogged") noteEffect(effects, nonce);
  if (deed == "twice") noteEffect(effects, nonce);
  act(deed, amount);

  PlainAnswer answered;
  auto& packer = answered.packer;
  packer.pack_array(2);
  packer.pack(tensor);
  packer.pack_array(0);
  packer.pack_array(1);
  const size_t bytes = x.count * sizeof(uint64_t);
  std::vector<uint64_t> small;
  uint64_t* result = nullptr;
  if (bytes <= kLongestInline) {
    small.resize(x.count);
    result = small.data();
  } else {
    result = static_cast<uint64_t*>(output_.allocate(bytes));
    if (result == nullptr) {
      giveBack(storages);
      return refuse(call, RefusalKind::kArenaFull, "the plain worker has no room for the result");
    }
  }
  for (size_t i = 0; i < x.count; ++i) result[i] = 3 * x.data[i] + nonce;
  if (deed == "wrong") ++result[x.count / 2];
  if (!small.empty() || bytes == 0) {
    packer.pack_array(2).pack(kInlineStorage);
    packer.pack_bin(static_cast<uint32_t>(bytes));
    packer.pack_bin_body(reinterpret_cast<const char*>(small.data()), static_cast<uint32_t>(bytes));
  } else {
    const auto lease = lent_.lend(result);
    const auto place = output_.locate(result);
    if (!lease || !place) {
      output_.dropReference(result);
      giveBack(storages);
      return refuse(call, RefusalKind::kArenaFull, "the plain worker has no free lease");
    }
    packer.pack_array(6).pack(kLentStorage).pack(place->segment.value).pack(place->offset);
    packer.pack(bytes).pack(lease->index).pack(lease->generation);
  }
  giveBack(storages);
  answer(call, CompletionStatus::kValue, answered.bytes);
}

PlainCalls::Numbers PlainCalls::numbersOf(const msgpack::object& storage) {
  const auto kind = at(storage, 0).as<uint32_t>();
  if (kind == kInlineStorage) {
    const msgpack::object_bin& bytes = at(storage, 1).via.bin;
    return {reinterpret_cast<uint64_t*>(const_cast<char*>(bytes.ptr)), bytes.size / 8};
  }
  const auto segment = at(storage, 1).as<uint32_t>();
  const auto offset = at(storage, 2).as<uint64_t>();
  const auto bytes = at(storage, 3).as<uint64_t>();
  if (kind == kLentStorage) {
    const auto found = inputs_.find(segment);
    if (found == inputs_.end() || offset > found->second.bytes() ||
        bytes > found->second.bytes() - offset) {
      throw std::runtime_error("an input lies in no segment");
    }
    return {reinterpret_cast<uint64_t*>(found->second.data() + offset), bytes / 8};
  }
  void* block = kind == kHomeStorage ? output_.find(base::SegmentId(segment), offset) : nullptr;
  if (block == nullptr) throw std::runtime_error("an input is of an unknown kind");
  return {static_cast<uint64_t*>(block), bytes / 8};
}

void PlainCalls::giveBack(const msgpack::object& storages) {
  if (storages.type != msgpack::type::ARRAY) return;
  for (const msgpack::object& storage : storages.via.array) {
    if (at(storage, 0).as<uint32_t>() != kLentStorage) continue;
    returnLease(end_.returns(), {at(storage, 4).as<uint32_t>(), at(storage, 5).as<uint32_t>()});
  }
}

void PlainCalls::answer(const ReceivedCall& call, CompletionStatus status,
                        const msgpack::sbuffer& body) {
  if ((call.flags & kNoReply) != 0) return;
  OutgoingPayload payload;
  payload.inlineBytes = std::as_bytes(std::span(body.data(), body.size()));
  const bool called = static_cast<Operation>(call.operation) == Operation::kCallObject;
  end_.complete(call.sequence, status, payload, called ? Work::kCall : Work::kUncounted);
}

void PlainCalls::answerNothing(const ReceivedCall& call) {
  PlainAnswer answered;
  auto& packer = answered.packer;
  packer.pack_array(2).pack_nil();
  packer.pack_array(0);
  packer.pack_array(0);
  answer(call, CompletionStatus::kValue, answered.bytes);
}

void PlainCalls::answerNoModuleMissing(const ReceivedCall& call) {
  PlainAnswer answered;
  auto& packer = answered.packer;
  packer.pack_array(2);
  packer.pack_array(2).pack(kListTag).pack(kStringType);
  packer.pack_array(0);
  packer.pack_array(0);
  answer(call, CompletionStatus::kValue, answered.bytes);
}

void PlainCalls::answerError(const ReceivedCall& call, const std::string& text) {
  PlainAnswer answered;
  auto& packer = answered.packer;
  packer.pack_array(4);
  packer.pack(std::string("ValueError")).pack(text).pack(std::string()).pack(text);
  packer.pack_array(0);
  answer(call, CompletionStatus::kPythonError, answered.bytes);
}

void PlainCalls::refuse(const ReceivedCall& call, RefusalKind kind, const std::string& text) {
  PlainAnswer answered;
  auto& packer = answered.packer;
  packer.pack_array(2).pack(static_cast<uint32_t>(kind)).pack(text);
  packer.pack_array(0);
  answer(call, CompletionStatus::kRefused, answered.bytes);
}

}  // namespace isopool::tests

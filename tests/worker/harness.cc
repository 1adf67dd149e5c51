// SPDX-License-Identifier: BSD-3-Clause
#include "tests/worker/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "base/system_call.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/control/worker_messages.h"
#include "ipc/control/zygote_messages.h"

namespace isopool::tests {

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void giveUp(const std::string& what) {
  throw std::runtime_error("timed out waiting for " + what);
}

ipc::Frame receiveFrom(ipc::ControlSocket& control, const char* what) {
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    if (auto frame = control.next()) return std::move(*frame);
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || !control.waitReadable(left)) giveUp(what);
    if (control.receive() == ipc::ReceiveResult::kPeerGone)
      giveUp(std::string(what) + ": peer is gone");
  }
}

std::pair<base::Fd, base::Fd> makePipe() {
  int ends[2];
  base::checkSystemCall(::pipe2(ends, O_CLOEXEC), "pipe2");
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

uint64_t nextEpoch = 1;

}  // namespace

void waitUntil(const std::function<bool()>& condition, const char* what, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() > deadline) giveUp(what);
    ::poll(nullptr, 0, 1);
  }
}

// ---- WorkerProcess ------------------------------------------------------------------------------

WorkerProcess::~WorkerProcess() {
  if (pid > 0 && !ended) {
    ::kill(-pid, SIGKILL);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

void WorkerProcess::ring() {
  auto& word = *reinterpret_cast<ipc::SharedWord<uint32_t>*>(doorbell.data());
  word.fetch_add(1);
  ipc::futexWake(word);
}

ipc::Frame WorkerProcess::receive() { return receiveFrom(control, "a message of the worker"); }

void WorkerProcess::kill(int signal) { ::kill(pid, signal); }

ProcessEnd WorkerProcess::waitForEnd() {
  if (ended) return *ended;
  pollfd readable{pidfd.get(), POLLIN, 0};
  if (::poll(&readable, 1, static_cast<int>(kPatience.count())) <= 0) giveUp("the worker's end");
  int status = 0;
  base::checkSystemCall(::waitpid(pid, &status, 0), "waitpid");
  ended = ProcessEnd{WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                     WIFEXITED(status) ? WEXITSTATUS(status) : 0};
  return *ended;
}

bool WorkerProcess::alive() {
  pollfd readable{pidfd.get(), POLLIN, 0};
  return ::poll(&readable, 1, 0) == 0;
}

std::string WorkerProcess::readCrashLog() const {
  struct stat status {};
  ::fstat(crashLog.get(), &status);
  constexpr off_t kMost = 64 * 1024;
  const off_t begin = std::max<off_t>(0, status.st_size - kMost);
  std::string text(static_cast<size_t>(status.st_size - begin), '\0');
  const ssize_t got = ::pread(crashLog.get(), text.data(), text.size(), begin);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

// ---- ZygoteProcess ------------------------------------------------------------------------------

ZygoteProcess::ZygoteProcess(std::vector<std::string> environment,
                             std::vector<std::string> through) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  auto [lifelineRead, lifelineWrite] = makePipe();
  auto [outRead, outWrite] = makePipe();

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // Moves both descriptors to high numbers, so that neither is overwritten before it is copied.
  const int high = ::fcntl(theirs.get(), F_DUPFD, 100);
  const int highLifeline = ::fcntl(lifelineRead.get(), F_DUPFD, 100);
  ::posix_spawn_file_actions_adddup2(&actions, outWrite.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, high, 3);
  ::posix_spawn_file_actions_adddup2(&actions, highLifeline, 4);
  ::posix_spawn_file_actions_addclose(&actions, high);
  ::posix_spawn_file_actions_addclose(&actions, highLifeline);

  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  for (const char* name : {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"}) {
    all.emplace_back(name);
  }
  // The first entry of a name wins, so the variables of the test come first.
  all.insert(all.begin(), environment.begin(), environment.end());
  std::vector<char*> envp;
  for (std::string& entry : all) envp.push_back(entry.data());
  envp.push_back(nullptr);
  for (const char* word : {ISOPOOL_WORKER, "--zygote", "--control-fd", "3", "--lifeline-fd", "4"}) {
    through.emplace_back(word);
  }
  std::vector<char*> argv;
  for (std::string& word : through) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto begin = Clock::now();
  const int error = ::posix_spawn(&pid_, argv.front(), &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(high);
  ::close(highLifeline);
  if (error != 0) throw base::SystemCallError("posix_spawn", through.front(), error);
  theirs.close();
  control_ = ipc::ControlSocket(std::move(ours));
  lifeline_ = std::move(lifelineWrite);
  stdout_ = std::move(outRead);
  ::fcntl(stdout_.get(), F_SETFL, O_NONBLOCK);
  greeting_ = receiveFrom(control_, "the zygote's greeting");
  startTime_ = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
}

ZygoteProcess::~ZygoteProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::unique_ptr<WorkerProcess> ZygoteProcess::fork(uint64_t seed) {
  auto worker = std::make_unique<WorkerProcess>();
  worker->epoch = nextEpoch++;
  auto [ours, theirs] = ipc::ControlSocket::makePair();
  auto [lifelineRead, lifelineWrite] = makePipe();
  worker->doorbellObject = ipc::createMemoryObject("bell", ipc::kPageBytes);
  worker->doorbell = ipc::mapShared(worker->doorbellObject, 0, ipc::kPageBytes,
                                    ipc::Access::kReadWrite, ipc::Prefault::kYes);
  worker->crashLog = ipc::createGrowingMemoryObject("crash log");
  const base::Fd statusPage = ipc::createMemoryObject("board", ipc::kPageBytes);
  worker->control = ipc::ControlSocket(std::move(ours));
  worker->lifeline = std::move(lifelineWrite);
  const auto begin = Clock::now();
  control_.send(ipc::ForkWorker{worker->epoch, seed, "", false},
                {theirs.get(), lifelineRead.get(), worker->doorbellObject.get(),
                 worker->crashLog.get(), statusPage.get()});
  theirs.close();
  lifelineRead.close();
  const ipc::Frame answer = receiveFrom(control_, "the zygote's answer");
  if (answer.type == ipc::MessageType::kForkFailed) {
    throw std::runtime_error(ipc::decodeMessage<ipc::ForkFailed>(answer).text);
  }
  worker->pid = ipc::decodeMessage<ipc::WorkerForked>(answer).processId;
  worker->pidfd = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, worker->pid, 0)));
  ipc::Frame ready;
  try {
    ready = worker->receive();
  } catch (const std::exception& error) {
    throw std::runtime_error(error.what() + ("\n" + worker->readCrashLog()));
  }
  if (ipc::decodeMessage<ipc::WorkerReady>(ready).epoch != worker->epoch) giveUp("its own epoch");
  worker->forkToReady = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  return worker;
}

std::string ZygoteProcess::output(const std::string& text) {
  std::string all;
  waitUntil(
      [&] {
        char buffer[4096];
        for (;;) {
          const ssize_t got = ::read(stdout_.get(), buffer, sizeof buffer);
          if (got <= 0) break;
          all.append(buffer, static_cast<size_t>(got));
        }
        return all.find(text) != std::string::npos;
      },
      "output of a worker");
  return all;
}

ZygoteProcess& sharedZygote() {
  static ZygoteProcess zygote;
  return zygote;
}

const std::string& probePackage() {
  static const std::string path = [] {
    char folder[] = "/tmp/isopool-worker-test-XXXXXX";
    if (::mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp failed");
    const std::string file = std::string(folder) + "/probe.pt";
    const std::string command =
        std::string("cd " TEST_SOURCE_DIR " && PYTHONDONTWRITEBYTECODE=1 " PYTHON
                    " make_package.py ") +
        file;
    if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " failed");
    return file;
  }();
  return path;
}

// ---- TestClient ---------------------------------------------------------------------------------

TestClient::TestClient(WorkerProcess& worker, uint64_t outputBytes, uint64_t inputBytes)
    : worker_(worker), number_(++worker.clients) {
  using namespace base;
  using namespace ipc;
  const Fd clientControl = createMemoryObject("client control", kClientControlBytes);
  const Fd workerControl = createMemoryObject("worker control", kWorkerControlBytes);
  const Fd output = createMemoryObject("output", outputBytes);
  Mapping own =
      mapShared(clientControl, 0, kClientControlBytes, Access::kReadWrite, Prefault::kYes);
  sealMemoryObject(clientControl, Seal::kSingleWriter);
  Mapping peer =
      mapShared(workerControl, 0, kWorkerControlBytes, Access::kReadOnly, Prefault::kYes);
  outputs_[1] = mapShared(output, 0, outputBytes, Access::kReadWrite, Prefault::kYes);
  end_ = std::make_unique<ClientEnd>(Epoch(worker.epoch), std::move(own), std::move(peer));
  leases_ = std::make_unique<LeaseTable>(end_->peer().inputReturns);
  worker.send(AttachChannel{worker.epoch, number_, outputBytes},
              {clientControl.get(), workerControl.get(), output.get()});
  decodeMessage<ChannelAttached>(worker.receive());
  if (!end_->attached() || !end_->headerValid()) giveUp("the channel");
  addInputSegment(inputBytes);
}

void TestClient::addInputSegment(uint64_t bytes) {
  base::Fd segment = ipc::createMemoryObject("input", bytes);
  worker_.send(ipc::MapInputSegment{number_, ++inputSegments_, bytes}, {segment.get()});
  inputs_.addSegment(base::SegmentId(inputSegments_), std::move(segment), bytes,
                     ipc::Prefault::kYes);
}

void TestClient::grantOutputSegment(uint64_t bytes) {
  const auto number = static_cast<uint32_t>(outputs_.size() + 1);
  const base::Fd segment = ipc::createMemoryObject("output", bytes);
  outputs_[number] =
      ipc::mapShared(segment, 0, bytes, ipc::Access::kReadWrite, ipc::Prefault::kYes);
  worker_.send(ipc::AddOutputSegment{number_, number, bytes}, {segment.get()});
}

at::Tensor TestClient::tensor(at::IntArrayRef sizes, at::ScalarType type) {
  size_t bytes = at::elementSize(type);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  inputBytesInUse();
  void* block = inputs_.allocate(bytes);
  if (block == nullptr) throw std::runtime_error("the test's input arena is full");
  return at::from_blob(
      block, sizes, [this, block](void*) { inputs_.dropReference(block); },
      at::TensorOptions().dtype(type));
}

size_t TestClient::inputBytesInUse() {
  leases_->collect([this](const void* block) { inputs_.dropReference(block); });
  return inputs_.bytesInUse();
}

uint32_t TestClient::inputLeasesOut() {
  leases_->collect([this](const void* block) { inputs_.dropReference(block); });
  return leases_->outstanding();
}

void TestClient::loadPackage(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const base::Fd object = ipc::createGrowingMemoryObject("package");
  size_t written = 0;
  while (written < bytes.size()) {
    written += static_cast<size_t>(base::checkSystemCall(
        static_cast<int>(::write(object.get(), bytes.data() + written, bytes.size() - written)),
        "write"));
  }
  ipc::sealMemoryObject(object, ipc::Seal::kReadOnly);
  worker_.send(ipc::MapPackage{number_, 1, bytes.size(), "probe"}, {object.get()});
}

void TestClient::detach() {
  worker_.send(ipc::DetachChannel{number_});
  const ipc::Frame answer = worker_.receive();
  if (ipc::decodeMessage<ipc::ChannelDetached>(answer).client != number_) {
    giveUp("its own detachment");
  }
}

uint64_t TestClient::publish(ipc::Operation operation, const Body& body, uint32_t flags) {
  writer_.clear();
  body(writer_);
  InFlight call;
  call.inputs = writer_.storages();
  std::vector<ipc::StorageRecord> records;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const c10::Storage& storage = call.inputs[i];
    auto* data = static_cast<std::byte*>(const_cast<void*>(storage.data()));
    ipc::StorageRecord record;
    record.bytes = storage.nbytes();
    if (const auto block = inputs_.locate(data)) {
      record.kind = ipc::StorageKind::kLent;
      record.segment = block->segment.value;
      record.offset = block->offset;
      const auto lease = leases_->lend(data);
      inputs_.addReference(data);
      record.lease = lease->index;
      record.generation = lease->generation;
    } else {
      bool home = false;
      for (const auto& [number, mapping] : outputs_) {
        if (!mapping.contains(data)) continue;
        record.kind = ipc::StorageKind::kHome;
        record.segment = number;
        record.offset = static_cast<uint64_t>(data - mapping.data());
        home = true;
      }
      if (!home) {
        record.kind = ipc::StorageKind::kInline;
        const auto extent = writer_.extentOfStorage(i);
        record.inlineBytes = {data + extent.begin, extent.end - extent.begin};
        record.rebase = extent.begin;
      }
    }
    records.push_back(record);
  }
  const auto bytes = writer_.finish(records);
  ipc::OutgoingCall outgoing;
  outgoing.operation = operation;
  outgoing.flags = flags;
  if (bytes.size() <= ipc::kInlineBytes) {
    outgoing.payload.inlineBytes = bytes;
  } else {
    call.blob = inputs_.allocate(bytes.size());
    std::memcpy(call.blob, bytes.data(), bytes.size());
    const auto place = inputs_.locate(call.blob);
    outgoing.payload.blobSegment = place->segment;
    outgoing.payload.blobOffset = place->offset;
    outgoing.payload.blobBytes = bytes.size();
  }
  waitUntil([&] { return end_->canPublish(); }, "room in the ring");
  const uint64_t sequence = end_->publish(outgoing);
  inFlight_[sequence] = std::move(call);
  return sequence;
}

Answer TestClient::receive(uint64_t sequence) {
  const auto deadline = Clock::now() + kPatience;
  ipc::ReceivedCompletion completion;
  for (;;) {
    switch (end_->peek(completion)) {
      case ipc::Received::kPoisoned:
        throw std::runtime_error("the worker's ring is poisoned");
      case ipc::Received::kOne: {
        if (completion.sequence != sequence) throw std::runtime_error("an answer to another call");
        InFlight call = std::move(inFlight_.at(sequence));
        inFlight_.erase(sequence);
        Answer answer = decode(completion, std::move(call));
        end_->consumed();
        return answer;
      }
      case ipc::Received::kNothing:
        break;
    }
    if (ipc::livenessWordOwnerDied(end_->peer())) throw std::runtime_error("the worker died");
    if (Clock::now() > deadline) giveUp("an answer");
    end_->announceSleep();
    if (!end_->completionReady()) {
      const ipc::FutexWatch watches[] = {end_->completionWatch(),
                                         ipc::watchLivenessWord(end_->peer())};
      ipc::futexWait(watches, milliseconds(100));
    }
    end_->withdrawSleep();
  }
}

std::vector<c10::Storage> TestClient::storagesOf(const std::vector<ipc::StorageRecord>& records,
                                                 const InFlight& call) {
  std::vector<c10::Storage> storages;
  for (const ipc::StorageRecord& record : records) {
    void* data = nullptr;
    std::function<void(void*)> deleter;
    at::Tensor holder;
    switch (record.kind) {
      case ipc::StorageKind::kEcho:
        storages.push_back(call.inputs.at(record.offset));
        continue;
      case ipc::StorageKind::kLent: {
        data = outputs_.at(record.segment).data() + record.offset;
        const ipc::Lease lease{record.lease, record.generation};
        deleter = [this, lease](void*) { ipc::returnLease(end_->returns(), lease); };
        break;
      }
      default: {
        // Inline bytes; or stored bytes, of which tests examine only the record.
        auto* copy = new char[record.bytes + 1]();
        if (record.kind == ipc::StorageKind::kInline) {
          std::memcpy(copy, record.inlineBytes.data(), record.bytes);
        }
        data = copy;
        deleter = [](void* memory) { delete[] static_cast<char*>(memory); };
      }
    }
    storages.push_back(
        at::from_blob(data, {static_cast<int64_t>(record.bytes)}, deleter, at::kByte).storage());
  }
  return storages;
}

Answer TestClient::decode(const ipc::ReceivedCompletion& completion, InFlight call) {
  std::span<const std::byte> bytes(completion.bytes, completion.payload.inlineBytes);
  std::vector<std::byte> blob;
  if (completion.payload.blobBytes != 0) {
    const std::byte* begin =
        outputs_.at(completion.payload.blobSegment).data() + completion.payload.blobOffset;
    blob.assign(begin, begin + completion.payload.blobBytes);
    bytes = blob;
  }
  ipc::PayloadReader reader(bytes);
  Answer answer;
  answer.status = static_cast<ipc::CompletionStatus>(completion.status & ~ipc::kInputReportFlag);
  answer.storages = reader.storages();
  if (call.blob != nullptr) inputs_.dropReference(call.blob);
  switch (answer.status) {
    case ipc::CompletionStatus::kValue: {
      reader.setStorages(storagesOf(reader.storages(), call));
      answer.value = reader.value(reader.element(0));
      const msgpack::object& copies = reader.element(1);
      for (uint32_t i = 0; i < copies.via.array.size; ++i) {
        const auto pair = copies.via.array.ptr[i].as<std::pair<uint32_t, uint64_t>>();
        answer.copies[static_cast<ipc::CopyReason>(pair.first)] = pair.second;
      }
      break;
    }
    case ipc::CompletionStatus::kPythonError:
      for (size_t i = 0; i < 4; ++i) answer.error.emplace_back(reader.text(i));
      break;
    case ipc::CompletionStatus::kRefused:
      answer.refusal = static_cast<ipc::RefusalKind>(reader.integer(0));
      answer.reason = reader.text(1);
      break;
    case ipc::CompletionStatus::kWithdrawn:
      break;
  }
  return answer;
}

void TestClient::defineProbe() {
  loadPackage(probePackage());
  const Answer answer = ask(ipc::Operation::kDefineObject, [](ipc::PayloadWriter& writer) {
    writer.packer().pack_array(4).pack(1).pack(1);
    writer.packer().pack(std::string("torch.package"));
    writer.packer().pack(std::string(R"(["model","model.pkl"])"));
  });
  if (answer.status != ipc::CompletionStatus::kValue) {
    throw std::runtime_error("the probe can't be loaded: " + answer.reason +
                             (answer.error.empty() ? "" : answer.error[2]));
  }
}

uint64_t TestClient::publishProbe(const std::string& name, std::vector<at::IValue> arguments,
                                  const std::vector<std::pair<std::string, at::IValue>>& named,
                                  uint32_t flags) {
  return publish(
      ipc::Operation::kCallObject,
      [&](ipc::PayloadWriter& writer) {
        auto& packer = writer.packer();
        packer.pack_array(3).pack(1);
        packer.pack_array(static_cast<uint32_t>(arguments.size() + 1));
        writer.addValue(name);
        for (const at::IValue& argument : arguments) writer.addValue(argument);
        packer.pack_map(static_cast<uint32_t>(named.size()));
        for (const auto& [key, value] : named) {
          packer.pack(key);
          writer.addValue(value);
        }
      },
      flags);
}

at::IValue TestClient::probeValue(const std::string& name, std::vector<at::IValue> arguments) {
  const Answer answer = probe(name, std::move(arguments));
  if (answer.status != ipc::CompletionStatus::kValue) {
    throw std::runtime_error(name + " failed: " + answer.reason +
                             (answer.error.empty() ? "" : answer.error[2]));
  }
  return answer.value;
}

}  // namespace isopool::tests

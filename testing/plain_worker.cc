// SPDX-License-Identifier: BSD-3-Clause
// A zygote and workers like those of isopool-worker, without torch and Python: for tests that start
// and kill hundreds of them. The file that PLAIN_WORKER_MODE names contains one word, the requested
// failure; each new process reads it. A kPing whose payload begins with '!' is a command; any other
// kPing is echoed. PlainCalls does the requests of libisopool.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/lifeline.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/layout.h"
#include "ipc/channel/liveness_word.h"
#include "ipc/channel/status_page.h"
#include "ipc/channel/worker_end.h"
#include "ipc/control/frame.h"
#include "ipc/control/worker_messages.h"
#include "ipc/control/zygote_messages.h"
#include "ipc/memory/memory_object.h"
#include "testing/plain_calls.h"

namespace {

using namespace isopool::base;
using namespace isopool::ipc;
using isopool::base::armLifeline;
using isopool::tests::PlainCalls;

std::string mode() {
  const char* path = std::getenv("PLAIN_WORKER_MODE");
  std::string word;
  if (path != nullptr) std::ifstream(path) >> word;
  return word;
}

[[noreturn]] void pauseForEver() {
  for (;;) ::pause();
}

void sendGarbage(int fd) {
  [[maybe_unused]] const ssize_t written = ::write(fd, "this is no frame, is it?", 24);
}

class PlainWorker {
 public:
  PlainWorker(uint64_t epoch, std::vector<Fd> descriptors)
      : epoch_(epoch),
        control_(std::move(descriptors[0])),
        lifeline_(std::move(descriptors[1])),
        doorbellPage_(mapShared(descriptors[2], 0, kPageBytes, Access::kReadOnly, Prefault::kNo)),
        doorbell_(reinterpret_cast<const SharedWord<uint32_t>*>(doorbellPage_.data())),
        crashLog_(std::move(descriptors[3])),
        statusPageObject_(
            mapShared(descriptors[4], 0, kPageBytes, Access::kReadWrite, Prefault::kNo)),
        statusPage_(new (statusPageObject_.data()) WorkerStatusPage) {
    sealMemoryObject(descriptors[4], Seal::kSingleWriter);
    if (descriptors.size() > 5) {
      ::dup2(descriptors[5].get(), STDOUT_FILENO);
      ::dup2(descriptors[5].get(), STDERR_FILENO);
    }
  }

  [[noreturn]] void serve() {
    ::setpgid(0, 0);
    if (!armLifeline(lifeline_.get())) ::_exit(0);
    const std::string how = mode();
    if (how == "worker-exits") ::_exit(5);
    if (how == "worker-silent") pauseForEver();
    control_.send(WorkerReady{epoch_});
    for (;;) {
      const uint32_t rung = doorbell_->load();
      readControl(how);
      bool served = false;
      for (const uint64_t client : clients()) {
        const auto found = ends_.find(client);
        if (found == ends_.end() || !found->second->callReady()) continue;
        serveCall(client, *found->second);
        statusPage_->runningClient.store(0);
        served = true;
      }
      if (!served) sleep(rung);
    }
  }

 private:
  // A copy: while a call waits for its inputs, clients may be detached.
  std::vector<uint64_t> clients() const {
    std::vector<uint64_t> all;
    for (const auto& [client, end] : ends_) all.push_back(client);
    return all;
  }

  void readControl(const std::string& how) {
    ReceiveResult result;
    while ((result = control_.receive()) == ReceiveResult::kOk) {
    }
    if (result == ReceiveResult::kPeerGone) ::_exit(0);
    while (std::optional<Frame> frame = control_.next()) {
      switch (frame->type) {
        case MessageType::kAttachChannel:
          attach(*frame);
          if (how == "worker-dies-attached") ::kill(::getpid(), SIGKILL);
          break;
        case MessageType::kDetachChannel: {
          const uint64_t client = decodeMessage<DetachChannel>(*frame).client;
          if (how == "worker-keeps-channels") pauseForEver();
          calls_.erase(client);
          ends_.erase(client);
          control_.send(ChannelDetached{client});
          break;
        }
        case MessageType::kMapPackage:
          requireChannel(decodeMessage<MapPackage>(*frame).client);
          known_ += "+" + decodeMessage<MapPackage>(*frame).name;
          break;
        case MessageType::kUnmapPackage:
          for (const uint32_t package : decodeMessage<UnmapPackage>(*frame).packages) {
            known_ += "-";
            known_ += std::to_string(package);
          }
          break;
        case MessageType::kMapInputSegment:
          mapInput(*frame);
          break;
        case MessageType::kUnmapInputSegment: {
          const auto removed = decodeMessage<UnmapInputSegment>(*frame);
          requireChannel(removed.client);
          known_ += "~" + std::to_string(removed.segment);
          control_.send(InputSegmentUnmapped{removed.client, removed.segment});
          break;
        }
        case MessageType::kAddOutputSegment: {
          const auto added = decodeMessage<AddOutputSegment>(*frame);
          segments_ += std::to_string(added.segment) + ":" + std::to_string(added.bytes) + ";";
          break;
        }
        case MessageType::kRefuseInputSegment: {
          const auto refused = decodeMessage<RefuseInputSegment>(*frame);
          known_ += "!" + refused.text;
          ++inputs_[refused.client].refused;
          break;
        }
        case MessageType::kRefuseOutputSegment:
          segments_ += decodeMessage<RefuseOutputSegment>(*frame).text + ";";
          break;
        case MessageType::kTrimOutput:
          segments_ += "trim;";
          break;
        default:
          break;
      }
    }
  }

  // A client begins with its channel: a message about a client without one is a supervisor's error.
  void requireChannel(uint64_t client) const {
    if (ends_.count(client) == 0) ::_exit(3);
  }

  void attach(Frame& frame) {
    const auto message = decodeMessage<AttachChannel>(frame);
    Mapping own =
        mapShared(frame.descriptors[1], 0, kWorkerControlBytes, Access::kReadWrite, Prefault::kNo);
    sealMemoryObject(frame.descriptors[1], Seal::kSingleWriter);
    Mapping peer =
        mapShared(frame.descriptors[0], 0, kClientControlBytes, Access::kReadOnly, Prefault::kNo);
    auto& end = ends_[message.client];
    end = std::make_unique<WorkerEnd>(Epoch(epoch_), std::move(own), std::move(peer));
    end->attach();
    calls_[message.client] = std::make_unique<PlainCalls>(*end, std::move(frame.descriptors[2]),
                                                          static_cast<size_t>(message.outputBytes));
    control_.send(ChannelAttached{message.client});
  }

  void mapInput(const Frame& frame) {
    const auto message = decodeMessage<MapInputSegment>(frame);
    requireChannel(message.client);
    ++inputs_[message.client].mapped;
    known_ += '#';
    known_ += std::to_string(message.segment);
    calls_.at(message.client)
        ->addInputSegment(message.segment,
                          mapShared(frame.descriptors[0], 0, static_cast<size_t>(message.bytes),
                                    Access::kReadWrite, Prefault::kNo));
  }

  void sleep(uint32_t rung) {
    std::vector<FutexWatch> watches{{doorbell_, rung}};
    bool ready = false;
    for (auto& [client, end] : ends_) {
      end->announceSleep();
      ready = ready || end->callReady();
      const auto [word, expected] = end->watch();
      watches.push_back({word, expected});
    }
    // With more words than the kernel takes, it wakes up every 5 ms: sufficient for tests.
    const bool all = watches.size() <= kMaxFutexWatches;
    if (!ready) {
      futexWait(watches, all ? std::nullopt : std::optional(std::chrono::milliseconds(5)));
    }
    for (auto& [client, end] : ends_) end->withdrawSleep();
  }

  void serveCall(uint64_t client, WorkerEnd& end) {
    auto call = std::make_unique<ReceivedCall>();
    statusPage_->runningSince.store(monotonicNow());
    statusPage_->runningClient.store(client);
    if (end.peek(*call) != Received::kOne) ::_exit(9);
    end.taken();
    client_ = client;
    const bool ping = static_cast<Operation>(call->operation) == Operation::kPing;
    if (!ping && !awaitInputs(client, *call)) return;
    if (end.start(call->sequence) == Start::kRecalled) {
      withdraw(end, call->sequence);
    } else if (ping) {
      end.noteCode();
      answerPing(end, *call);
    } else {
      calls_.at(client)->run(*call);
    }
  }

  // False if the client was detached meanwhile.
  bool awaitInputs(uint64_t client, const ReceivedCall& call) {
    const auto giveUp = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (calls_.count(client) != 0 && !calls_.at(client)->resolvable(call) &&
           std::chrono::steady_clock::now() < giveUp) {
      if (control_.waitReadable(std::chrono::milliseconds(100))) readControl("");
    }
    return calls_.count(client) != 0;
  }

  static void withdraw(WorkerEnd& end, uint64_t sequence) {
    constexpr std::array<std::byte, 3> nothing{std::byte{0x92}, std::byte{0x90}, std::byte{0x90}};
    OutgoingPayload payload;
    payload.inlineBytes = nothing;
    end.complete(sequence, CompletionStatus::kWithdrawn, payload, Work::kUncounted);
  }

  void answerPing(WorkerEnd& end, const ReceivedCall& call) {
    const std::string request(reinterpret_cast<const char*>(call.bytes), call.payload.inlineBytes);
    const std::string answer = answerTo(request);
    OutgoingPayload payload;
    payload.inlineBytes = std::as_bytes(std::span(answer));
    end.complete(call.sequence, CompletionStatus::kValue, payload);
  }

  std::string answerTo(const std::string& request) {
    const size_t blank = request.find(' ');
    const std::string command = request.substr(0, blank);
    const std::string argument = blank == std::string::npos ? "" : request.substr(blank + 1);
    if (command == "!exit") ::_exit(std::atoi(argument.c_str()));
    if (command == "!crash") crash(argument == "call");
    if (command == "!hang") pauseForEver();
    if (command == "!spin") spinFor(std::chrono::milliseconds(std::stoi(argument)));
    if (command == "!await") awaitFile(argument);
    if (command == "!known") return known_;
    if (command == "!segments") return segments_;
    if (command == "!inputs") {
      const Inputs& own = inputs_[client_];
      return std::to_string(own.mapped) + " mapped, " + std::to_string(own.refused) + " refused";
    }
    if (command == "!garbage") sendGarbage(control_.fd());
    if (command == "!lie") control_.send(WorkerReady{epoch_ + 1});
    if (command == "!want") control_.send(RequestOutputSegment{client_, std::stoull(argument)});
    if (command == "!retire") {
      control_.send(RetireOutputSegment{client_, static_cast<uint32_t>(std::stoul(argument))});
    }
    if (command == "!limit") limitMemory(std::stoull(argument) << 20);
    if (command == "!lack") control_.send(ForbiddenAct{kTooMuchMemory, 1});
    if (command == "!child") return std::to_string(startChild());
    if (command == "!daemon") return std::to_string(startDaemon());
    if (command == "!environment") {
      const char* value = std::getenv(argument.c_str());
      return value != nullptr ? value : "";
    }
    return request;
  }

  // Leaves what Python's faulthandler writes when the thread of the call, or another one, crashes.
  [[noreturn]] void crash(bool inCall) const {
    const std::string call = inCall ? "Current thread" : "Thread";
    const std::string text =
        "Fatal Python error: Aborted\n\n" +
        (inCall ? "" : std::string("Current thread 0x2 (most recent call first):\n\n")) + call +
        " 0x1 (most recent call first):\n";
    [[maybe_unused]] const ssize_t written = ::write(crashLog_.get(), text.data(), text.size());
    std::abort();
  }

  static void spinFor(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
    }
  }

  // Leaves the process this many bytes.
  static void limitMemory(uint64_t bytes) {
    std::ifstream status("/proc/self/status");
    uint64_t kibibytes = 0;
    for (std::string word; status >> word && !(word == "VmData:" && status >> kibibytes);) {
    }
    const rlimit limit{(kibibytes << 10) + bytes, RLIM_INFINITY};
    ::setrlimit(RLIMIT_DATA, &limit);
  }

  static void awaitFile(const std::string& path) {
    while (::access(path.c_str(), F_OK) != 0) ::usleep(1000);
  }

  static pid_t startChild() {
    const pid_t child = ::fork();
    if (child == 0) pauseForEver();
    return child;
  }

  // In a session of its own, and not a child of this process.
  static pid_t startDaemon() {
    int told[2];
    if (::pipe(told) != 0) return -1;
    const pid_t between = ::fork();
    if (between == 0) {
      ::setsid();
      const pid_t daemon = ::fork();
      if (daemon == 0) pauseForEver();
      [[maybe_unused]] const ssize_t written = ::write(told[1], &daemon, sizeof daemon);
      ::_exit(0);
    }
    pid_t daemon = -1;
    [[maybe_unused]] const ssize_t got = ::read(told[0], &daemon, sizeof daemon);
    ::close(told[0]);
    ::close(told[1]);
    ::waitpid(between, nullptr, 0);
    return daemon;
  }

  const uint64_t epoch_;
  ControlSocket control_;
  Fd lifeline_;
  Mapping doorbellPage_;
  const SharedWord<uint32_t>* doorbell_;
  Fd crashLog_;
  Mapping statusPageObject_;
  WorkerStatusPage* statusPage_;
  std::map<uint64_t, std::unique_ptr<WorkerEnd>> ends_;
  std::map<uint64_t, std::unique_ptr<PlainCalls>> calls_;  // of the same clients
  uint64_t client_ = 0;                                    ///< the client whose call runs
  struct Inputs {
    size_t mapped = 0;
    size_t refused = 0;
  };
  std::map<uint64_t, Inputs> inputs_;  // by client
  std::string known_;
  std::string segments_;
};

class PlainZygote {
 public:
  explicit PlainZygote(int controlFd) : control_(Fd(controlFd)) {}

  int serve() {
    const std::string how = mode();
    if (how == "zygote-exits") return 7;
    if (how == "zygote-silent") pauseForEver();
    while (mode() == "zygote-waits") ::usleep(5000);
    if (how == "zygote-garbage") sendGarbage(control_.fd());
    if (how == "zygote-fails") {
      control_.send(ZygoteFailed{"No module named 'torch'"});
      return 1;
    }
    control_.send(ZygoteReady{PLAIN_WORKER_PYTHON,
                              "none",
                              true,
                              {},
                              std::getenv("PLAIN_WORKER_NEEDS_FOLDERS") != nullptr});
    for (;;) {
      control_.waitReadable(kForever);
      if (control_.receive() == ReceiveResult::kPeerGone) return 0;
      while (std::optional<Frame> frame = control_.next()) fork(*frame);
    }
  }

 private:
  void fork(Frame& frame) {
    const auto request = decodeMessage<ForkWorker>(frame);
    const std::string how = mode();
    if (how == "fork-fails") {
      control_.send(ForkFailed{request.epoch, "more than one thread"});
      return;
    }
    if (how.rfind("names-", 0) == 0) {
      // Only once: the next zygote works correctly.
      std::ofstream(std::getenv("PLAIN_WORKER_MODE")) << "";
      control_.send(WorkerForked{request.epoch, std::atoi(how.c_str() + 6)});
      return;
    }
    if (how == "first-fork-kills-zygote") {
      std::ofstream(std::getenv("PLAIN_WORKER_MODE")) << "";
      ::kill(::getpid(), SIGKILL);
    }
    int told[2];
    if (::pipe2(told, O_CLOEXEC) != 0) ::_exit(1);
    const pid_t between = ::fork();
    if (between == 0) {
      const pid_t worker = ::fork();
      if (worker == 0) {
        ::close(told[0]);
        ::close(told[1]);
        control_.close();
        ::close(lifelineFd);
        PlainWorker(request.epoch, std::move(frame.descriptors)).serve();
      }
      [[maybe_unused]] const ssize_t written = ::write(told[1], &worker, sizeof worker);
      ::_exit(0);
    }
    pid_t worker = -1;
    [[maybe_unused]] const ssize_t got = ::read(told[0], &worker, sizeof worker);
    ::close(told[0]);
    ::close(told[1]);
    ::waitpid(between, nullptr, 0);
    control_.send(WorkerForked{request.epoch, worker});
  }

 public:
  int lifelineFd = -1;

 private:
  ControlSocket control_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--check-sandbox") == 0) {
    const char* problem = std::getenv("PLAIN_WORKER_CHECK");
    if (problem != nullptr) std::puts(problem);
    return problem != nullptr ? 1 : 0;
  }
  int controlFd = -1;
  int lifelineFd = -1;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--control-fd") == 0) controlFd = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--lifeline-fd") == 0) lifelineFd = std::atoi(argv[i + 1]);
  }
  if (!armLifeline(lifelineFd)) return 0;
  PlainZygote zygote(controlFd);
  zygote.lifelineFd = lifelineFd;
  return zygote.serve();
}

// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash_matrix/program_life.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/client/harness.h"

namespace isopool::tests {

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void requireFilledWith(const at::Tensor& tensor, double value) {
  require(tensor.eq(value).all().item<bool>(), "wrong bytes in an answer");
}

}  // namespace

const std::vector<Operation>& lifeOperations() {
  static const std::vector<Operation> operations{
      Operation::kOpen,        Operation::kLoad,       Operation::kInlineCall,
      Operation::kCopiedCall,  Operation::kSharedCall, Operation::kKeptCall,
      Operation::kLargeResult, Operation::kTrim,       Operation::kLongWords,
      Operation::kSession,     Operation::kRecall,     Operation::kWorkerDeath,
      Operation::kPackage,     Operation::kLeave};
  return operations;
}

ProgramLife::ProgramLife(MakeManager makeManager, std::string log, LifeProgress& progress)
    : makeManager_(std::move(makeManager)), log_(std::move(log)), progress_(progress) {}

ProgramLife::End ProgramLife::live() {
  for (const Operation operation : lifeOperations()) {
    const Outcome outcome = perform(operation);
    if (outcome == Outcome::kSupervisorLost) return End::kSupervisorLost;
    require(outcome == Outcome::kAnswered,
            "a worker was lost in " + std::string(operationName(operation)));
  }
  return End::kWhole;
}

ProgramLife::Outcome ProgramLife::perform(Operation operation) {
  progress_.operation = operation;
  try {
    act(operation);
    return Outcome::kAnswered;
  } catch (const WorkerLost& lost) {
    loss_ = lost.what();
    return Outcome::kWorkerLost;
  } catch (const SupervisorLost& lost) {
    loss_ = lost.what();
    return Outcome::kSupervisorLost;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string(operationName(operation)) + ": " + error.what());
  }
}

pid_t ProgramLife::worker() { return static_cast<pid_t>(object_({"pid"}).toInt()); }

void ProgramLife::act(Operation operation) {
  if (operation == Operation::kOpen) {
    manager_ = makeManager_();
    return;
  }
  if (operation == Operation::kLeave) return leave();
  if (operation == Operation::kLoad) {
    object_ = manager_->loadPackage(packagePath()).loadPickle("model", "model.pkl");
  }
  leaveALine();
  const double value = static_cast<double>(calls_);
  switch (operation) {
    case Operation::kInlineCall:
      return requireFilledWith(object_({"add_one", at::full({4}, value)}).toTensor(), value + 1);
    case Operation::kCopiedCall:
      return requireFilledWith(object_({"add_one", at::full({30'000}, value)}).toTensor(),
                               value + 1);
    case Operation::kSharedCall:
      return requireFilledWith(object_({"add_one", empty({30'000}).fill_(value)}).toTensor(),
                               value + 1);
    case Operation::kKeptCall: {
      object_({"keep", empty({8192}).fill_(value)});
      requireFilledWith(object_({"make_kept", 8192}).toTensor(), 0);
      // Asks the present worker. If the first one has died, it is another, which keeps less.
      require(object_({"all_kept_are", 0.0, value}).toBool(), "what was kept has changed");
      object_({"forget"});
      return;
    }
    case Operation::kLargeResult: {
      const at::Tensor first = object_({"zeros", 1'500'000}).toTensor();
      const at::Tensor second = object_({"zeros", 3'000'000}).toTensor();
      requireFilledWith(first, 0);
      requireFilledWith(second, 0);
      return;
    }
    case Operation::kTrim:
      return trim();
    case Operation::kLongWords: {
      const std::string words(5000, 'y');
      require(object_({"identity", words}).toStringRef() == words, "another text came back");
      return;
    }
    case Operation::kSession: {
      InterpreterSession session = object_.acquireSession();
      require(session.fromIValue(3).toIValue().toInt() == 3, "a session returned another value");
      require(session.self.attr("identity")({value}).toIValue().toDouble() == value,
              "a session's step gave another value");
      return;
    }
    case Operation::kRecall:
      return recall();
    case Operation::kWorkerDeath:
      return loseAWorker();
    case Operation::kPackage:
      return usePackage();
    default:
      return;
  }
}

void ProgramLife::leaveALine() {
  const int64_t number = ++calls_;
  told_[number] = Told::kNothing;
  try {
    require(object_({"log", log_, number}).toInt() == number, "the answer belongs to another call");
    told_[number] = Told::kAnswered;
  } catch (const WorkerLost& lost) {
    told_[number] = lost.started() ? Told::kMayHaveRun : Told::kNeverRan;
    throw;
  } catch (const SupervisorLost&) {
    told_[number] = Told::kMayHaveRun;
    throw;
  }
}

/// A step of a session occupies the worker until `meanwhile` has opened the gate or killed the
/// worker: calls of the pool wait in the ring behind the step.
void ProgramLife::callBehindAStep(const std::function<void(const std::string& gate)>& meanwhile) {
  const std::string arrived = log_ + "-arrived-" + std::to_string(++gates_);
  const std::string gate = log_ + "-gate-" + std::to_string(gates_);
  std::atomic<bool> ended{false};
  std::exception_ptr loss;
  InterpreterSession session = object_.acquireSession(&manager_->allInstances()[0]);
  std::thread step([&] {
    try {
      session.self({"wait_at", arrived, gate});
    } catch (const WorkerLost&) {
    } catch (const SupervisorLost&) {
      loss = std::current_exception();
    }
    ended = true;
  });
  const bool there =
      waitUntil([&] { return ended || std::filesystem::exists(arrived); }, milliseconds(10'000));
  try {
    if (!ended) meanwhile(gate);
  } catch (...) {
    loss = std::current_exception();
  }
  std::ofstream(gate).put('x');
  step.join();
  if (loss) std::rethrow_exception(loss);
  require(there, "a step never began");
}

void ProgramLife::recall() {
  callBehindAStep([&](const std::string&) {
    CallOptions soon;
    soon.deadline = milliseconds(2);
    try {
      [[maybe_unused]] const at::IValue answer =
          object_.call({"add_one", empty({8192}).fill_(1)}, {}, soon);
      throw std::runtime_error("a call was answered by a worker that runs another");
    } catch (const DeadlineExceeded& error) {
      require(!error.started(), "a call has started in a worker that runs another");
    }
  });
}

void ProgramLife::loseAWorker() {
  std::thread behind;
  std::exception_ptr loss;
  std::atomic<bool> ended{false};
  callBehindAStep([&](const std::string&) {
    const pid_t victim = manager_->allInstances()[0].processId().value_or(0);
    behind = std::thread([&] {
      try {
        leaveALine();
      } catch (...) {
        loss = std::current_exception();
      }
      ended = true;
    });
    const bool waits =
        waitUntil([&] { return ended || manager_->statistics().workers[0].callsInFlight > 0; });
    if (victim > 0) ::kill(victim, SIGKILL);
    behind.join();
    // Waits until the supervisor has reaped the worker: what the supervisor does then belongs to
    // this operation.
    const bool reaped = victim <= 0 || waitUntil([&] { return ::kill(victim, 0) != 0; });
    require(waits, "a call never reached the ring");
    require(reaped, "a dead worker is not reaped");
  });
  if (loss) std::rethrow_exception(loss);
}

/// Leaves while a lease is out: a program waits until its worker has returned it.
void ProgramLife::leave() {
  std::optional<InterpreterSession> session;
  std::optional<Obj> held;
  try {
    session.emplace(object_.acquireSession());
    held.emplace(session->fromIValue(empty({8192})));
  } catch (const Error&) {
    // The worker or the supervisor is dead: nothing is lent to it.
  }
  object_ = {};
  manager_.reset();
}

/// Has the memory of large tensors in both directions returned to the system.
void ProgramLife::trim() {
  // Larger than the segment that is kept as a reserve: it gets a segment of its own.
  requireFilledWith(object_({"add_one", empty({3'000'000}).fill_(1)}).toTensor(), 2);
  // The worker handles the supervisor's messages between two calls. In the end it has for results
  // what it had from the start.
  constexpr uint64_t kFromTheStart = 4 << 20;
  const bool isBack = waitUntil([&] {
    trimSharedMemory();
    object_({"pid"});
    return manager_->statistics().workers[0].outputBytes <= kFromTheStart;
  });
  require(isBack, "the memory of results does not go back");
  object_({"pid"});
}

void ProgramLife::usePackage() {
  Package package = manager_->loadPackage(packagePath("one.pt"));
  ReplicatedObj other = package.loadPickle("model", "model.pkl");
  require(other({at::ones({1, 2})}).toTensor().numel() == 2, "another model answered");
  other.unload();
}

void ProgramLife::checkLog() const {
  std::map<int64_t, int> runs;
  std::ifstream file(log_);
  for (int64_t number = 0; file >> number;) ++runs[number];
  for (const auto& [number, told] : told_) {
    const auto found = runs.find(number);
    const int times = found == runs.end() ? 0 : found->second;
    const std::string call = "call " + std::to_string(number) + " ran " + std::to_string(times) +
                             " times, and for its caller it ";
    if (told == Told::kAnswered) require(times == 1, call + "was answered");
    if (told == Told::kMayHaveRun) require(times <= 1, call + "may have run");
    if (told == Told::kNeverRan) require(times == 0, call + "never ran");
    require(told != Told::kNothing, call + "has no outcome");
  }
}

}  // namespace isopool::tests

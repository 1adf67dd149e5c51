// SPDX-License-Identifier: BSD-3-Clause
#include "tests/client/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "testing/temporary_folder.h"
#include "tests/client/made_files.h"

namespace isopool::tests {

namespace {

base::Fd closedOnExec(int fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return base::Fd(fd);
}

std::string contentsOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string nameOf(pid_t pid) {
  std::string name = contentsOf("/proc/" + std::to_string(pid) + "/comm");
  return name.substr(0, name.find('\n'));
}

/// Field 22 of /proc/PID/stat, see proc(5). Counted from the end of the name: a name may
/// contain any character.
uint64_t startTimeOf(pid_t pid) {
  const std::string stat = contentsOf("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field.empty() ? UINT64_MAX : std::stoull(field);
}

struct SharedPool {
  std::unique_ptr<InterpreterManager> manager;
  std::optional<Subject> subject;
};
SharedPool sharedPool;

/// What all tests of one run share. It ends before static objects are destroyed.
class Run : public ::testing::Environment {
 public:
  void TearDown() override {
    sharedPool.subject.reset();
    sharedPool.manager.reset();
    if (mark_) {
      EXPECT_TRUE(mark_->waitUntilNoneIsLeft(kPatience));
    }
    variable_.reset();
    temporary_.reset();
  }

  const std::filesystem::path& folder() {
    if (!temporary_) folder_ = temporary_.emplace().path();
    return folder_;
  }

  SharedPool& pool() {
    if (sharedPool.manager) return sharedPool;
    mark_.emplace();
    variable_.emplace(mark_->variable());
    sharedPool.manager = std::make_unique<InterpreterManager>(2);
    sharedPool.subject.emplace(*sharedPool.manager);
    return sharedPool;
  }

 private:
  std::optional<TemporaryFolder> temporary_;
  std::filesystem::path folder_;
  std::optional<ProcessMark> mark_;
  std::optional<ScopedVariable> variable_;
};

Run* run = nullptr;

}  // namespace

bool waitUntil(const std::function<bool()>& condition, milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() > deadline) return condition();
    ::poll(nullptr, 0, 1);
  }
  return true;
}

const std::filesystem::path& testFolder() { return run->folder(); }

std::string packagePath(const std::string& name) {
  static const std::filesystem::path folder = madeBy("make_packages.py");
  return folder / name;
}

void appendToArchive(const std::filesystem::path& archive) {
  std::ofstream file(archive, std::ios::app | std::ios::binary);
  file << "behind the archive's directory";
  if (!file.flush()) throw std::runtime_error("appending to " + archive.string() + " failed");
}

// ---- Subject ---------------------------------------------------------------------------------

Subject::Subject(InterpreterManager& manager)
    : object_(manager.loadPackage(packagePath()).loadPickle("model", "model.pkl")) {}

at::IValue Subject::ask(const std::string& method, std::vector<at::IValue> arguments) const {
  arguments.insert(arguments.begin(), method);
  return object_(arguments);
}

at::IValue Subject::ask(const std::string& method, std::vector<at::IValue> arguments,
                        const CallOptions& options) const {
  arguments.insert(arguments.begin(), method);
  return object_.call(std::move(arguments), {}, options);
}

InterpreterManager& sharedManager() { return *run->pool().manager; }
const Subject& sharedSubject() { return *run->pool().subject; }

// ---- Gate ------------------------------------------------------------------------------------

Gate::Gate() {
  static std::atomic<int> count{0};
  const std::string stem = testFolder() / ("gate-" + std::to_string(++count));
  arrived_ = stem + "-arrived";
  open_ = stem + "-open";
}

pid_t Gate::arrival() const {
  EXPECT_TRUE(waitUntil([&] { return std::filesystem::exists(arrived_); }))
      << "no call has arrived";
  const std::string text = contentsOf(arrived_);
  return text.empty() ? -1 : std::stoi(text);
}

void Gate::open() const { std::ofstream(open_).put('x'); }

// ---- Processes -------------------------------------------------------------------------------

ScopedVariable::ScopedVariable(const std::string& assignment)
    : name_(assignment.substr(0, assignment.find('='))) {
  if (const char* value = std::getenv(name_.c_str())) previous_ = value;
  ::setenv(name_.c_str(), assignment.c_str() + name_.size() + 1, 1);
}

ScopedVariable::~ScopedVariable() {
  if (previous_) {
    ::setenv(name_.c_str(), previous_->c_str(), 1);
  } else {
    ::unsetenv(name_.c_str());
  }
}

std::vector<pid_t> ProcessTree::named(const std::string& name) const {
  std::vector<pid_t> found = all();
  std::erase_if(found, [&](pid_t pid) { return nameOf(pid) != name; });
  return found;
}

pid_t ProcessTree::supervisor() const {
  const std::vector<pid_t> found = supervisors();
  EXPECT_EQ(found.size(), 1u) << "supervisors";
  return found.empty() ? -1 : found.front();
}

pid_t ProcessTree::guardian() const {
  const std::vector<pid_t> found = named("isopoold-guard");
  EXPECT_EQ(found.size(), 1u) << "guardians";
  return found.empty() ? -1 : found.front();
}

pid_t ProcessTree::zygote() const {
  const std::vector<pid_t> found = named("isopool-worker");
  EXPECT_FALSE(found.empty()) << "there is no zygote";
  const auto oldest = std::min_element(found.begin(), found.end(), [](pid_t one, pid_t other) {
    return startTimeOf(one) < startTimeOf(other);
  });
  return oldest == found.end() ? -1 : *oldest;
}

uint64_t memoryOf(pid_t process, const std::string& name) {
  std::ifstream rollup("/proc/" + std::to_string(process) + "/smaps_rollup");
  for (std::string word; rollup >> word;) {
    uint64_t kibibytes = 0;
    if (word == name + ":" && rollup >> kibibytes) return kibibytes << 10;
  }
  ADD_FAILURE() << "the kernel reports no " << name << " for process " << process;
  return 0;
}

OwnPool::OwnPool(size_t workers, const std::vector<std::string>& variables) {
  std::vector<std::unique_ptr<ScopedVariable>> scope;
  scope.push_back(std::make_unique<ScopedVariable>(mark_.variable()));
  for (const std::string& each : variables) {
    scope.push_back(std::make_unique<ScopedVariable>(each));
  }
  manager_ = std::make_unique<InterpreterManager>(workers);
  subject_.emplace(*manager_);
}

OwnPool::~OwnPool() {
  manager_.reset();
  EXPECT_TRUE(mark_.waitUntilNoneIsLeft(kPatience)) << "processes are left over";
}

// ---- Program ---------------------------------------------------------------------------------

Program::Program(std::vector<std::string> words, std::vector<std::string> variables) {
  int in[2];
  int out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  const base::Fd childInput = closedOnExec(in[0]);
  const base::Fd childOutput = closedOnExec(out[1]);
  input_ = base::Fd(in[1]);
  output_ = base::Fd(out[0]);

  variables.push_back(mark_.variable());
  for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, childInput.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, childOutput.get(), 1);
  const int error = ::posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(),
                                  environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("can't start " + words[0]);
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  EXPECT_TRUE(mark_.waitUntilNoneIsLeft(kPatience)) << "processes are left over";
}

std::optional<std::string> Program::readLine(milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    pollfd readable{output_.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) != 1) return {};
    char buffer[4096];
    const ssize_t got = ::read(output_.get(), buffer, sizeof buffer);
    if (got <= 0) return {};
    unread_.append(buffer, static_cast<size_t>(got));
  }
}

void Program::kill(int signal) const { ::kill(pid_, signal); }

std::optional<int> Program::waitForEnd(milliseconds patience) {
  int status = 0;
  if (!waitUntilDead(pid_, patience) || ::waitpid(pid_, &status, 0) != pid_) return {};
  pid_ = -1;
  return status;
}

CopyCounters operator-(const CopyCounters& after, const CopyCounters& before) {
  CopyCounters difference = after;
  difference.inputOutsideSharedMemory -= before.inputOutsideSharedMemory;
  difference.inputInline -= before.inputInline;
  difference.inputOfOtherWorker -= before.inputOfOtherWorker;
  difference.resultOutsideSharedMemory -= before.resultOutsideSharedMemory;
  difference.resultInline -= before.resultInline;
  difference.resultNoLease -= before.resultNoLease;
  difference.resultWeightWritten -= before.resultWeightWritten;
  difference.keptByModel -= before.keptByModel;
  return difference;
}

}  // namespace isopool::tests

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  isopool::tests::run = new isopool::tests::Run;
  ::testing::AddGlobalTestEnvironment(isopool::tests::run);
  return RUN_ALL_TESTS();
}

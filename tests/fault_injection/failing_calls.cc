// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fault_injection/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>

// The functions that glibc exports for replacements of malloc.
extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* __libc_calloc(size_t count, size_t bytes);
extern "C" void* __libc_realloc(void* block, size_t bytes);
extern "C" void* __libc_memalign(size_t alignment, size_t bytes);

namespace {

using isopool::tests::CallKind;
using isopool::tests::isopoolFailNthCall;
using isopool::tests::kCallKindNames;

constexpr uint32_t kNone = ~0u;

std::atomic<uint32_t> armedKind{kNone};
std::atomic<uint64_t> armedAt{0};
std::atomic<uint64_t> counted{0};

void tellReport(char what) {
  const char* path = std::getenv("ISOPOOL_FAIL_REPORT");
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  (void)!::write(file, &what, 1);
  ::close(file);
}

// True while glibc registers the destructor of a thread_local object: glibc ends the program
// if the allocation for it fails, which no caller can prevent. Torch and other libraries have
// such objects.
__attribute__((tls_model("initial-exec"))) thread_local bool sparing = false;

bool fails(CallKind kind) {
  if (sparing) return false;
  if (armedKind.load(std::memory_order_relaxed) != static_cast<uint32_t>(kind)) return false;
  if (counted.fetch_add(1) + 1 != armedAt.load()) return false;
  const int error = errno;
  tellReport('f');
  errno = error;
  return true;
}

int failWith(int error) {
  errno = error;
  return -1;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

[[noreturn]] void tellCrash(int signal) {
  tellReport('c');
  struct sigaction byDefault {};
  byDefault.sa_handler = SIG_DFL;
  next<decltype(&sigaction)>("sigaction")(signal, &byDefault, nullptr);
  ::raise(signal);
  ::_exit(1);
}

bool tellsOf(int signal) { return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT; }

void tellCrashes() {
  if (std::getenv("ISOPOOL_FAIL_REPORT") == nullptr) return;
  struct sigaction ours {};
  ours.sa_handler = tellCrash;
  ours.sa_flags = SA_NODEFER;
  const auto real = next<decltype(&sigaction)>("sigaction");
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT}) real(signal, &ours, nullptr);
}

bool isForThisProgram() {
  const char* program = std::getenv("ISOPOOL_FAIL_PROGRAM");
  return program == nullptr || std::strcmp(program, program_invocation_short_name) == 0;
}

void armFromEnvironment() {
  const char* order = std::getenv("ISOPOOL_FAIL_CALL");
  if (order == nullptr) return;
  const char* colon = std::strchr(order, ':');
  if (colon == nullptr) return;
  const std::string_view name(order, static_cast<size_t>(colon - order));
  for (uint32_t kind = 0; kind < kCallKindNames.size(); ++kind) {
    if (kCallKindNames[kind] == name)
      isopoolFailNthCall(kind, std::strtoull(colon + 1, nullptr, 10));
  }
}

}  // namespace

namespace {
int (*programsMain)(int, char**, char**) = nullptr;

int mainUnderOrders(int count, char** words, char** environment) {
  if (isForThisProgram()) {
    tellCrashes();
    armFromEnvironment();
  }
  return programsMain(count, words, environment);
}
}  // namespace

extern "C" {

// Calls fail only from main on: no program can handle a failure before it.
int __libc_start_main(int (*programMain)(int, char**, char**), int count, char** words,
                      void (*begin)(), void (*end)(), void (*endOfLinker)(), void* stack) {
  programsMain = programMain;
  return next<decltype(&__libc_start_main)>("__libc_start_main")(mainUnderOrders, count, words,
                                                                 begin, end, endOfLinker, stack);
}

int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* library) {
  using Function = int (*)(void (*)(void*), void*, void*);
  static const auto real = next<Function>("__cxa_thread_atexit_impl");
  sparing = true;
  const int result = real(destroy, object, library);
  sparing = false;
  return result;
}

// Crashes must also be reported for a program that resets all signal handlers.
int sigaction(int signal, const struct sigaction* action, struct sigaction* before) {
  if (tellsOf(signal) && action != nullptr && programsMain != nullptr) return 0;
  return next<decltype(&sigaction)>("sigaction")(signal, action, before);
}

void isopoolFailNthCall(uint32_t kind, uint64_t n) {
  armedKind.store(kNone);
  counted.store(0);
  armedAt.store(n);
  armedKind.store(kind);
}

uint64_t isopoolCallsCounted() { return counted.load(); }

void* malloc(size_t bytes) {
  if (!fails(CallKind::kAllocation)) return __libc_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}

void* calloc(size_t count, size_t bytes) {
  if (!fails(CallKind::kAllocation)) return __libc_calloc(count, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* realloc(void* block, size_t bytes) {
  if (!fails(CallKind::kAllocation)) return __libc_realloc(block, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  if (!fails(CallKind::kAllocation)) return __libc_memalign(alignment, bytes);
  errno = ENOMEM;
  return nullptr;
}

int posix_memalign(void** block, size_t alignment, size_t bytes) {
  if (fails(CallKind::kAllocation)) return ENOMEM;
  void* made = __libc_memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  if (fails(CallKind::kMmap)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset));
}

int memfd_create(const char* name, unsigned int flags) {
  if (fails(CallKind::kMemfdCreate)) return failWith(EMFILE);
  return static_cast<int>(::syscall(SYS_memfd_create, name, flags));
}

int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  if (fails(CallKind::kFallocate)) return failWith(ENOSPC);
  return static_cast<int>(::syscall(SYS_fallocate, descriptor, mode, offset, bytes));
}

int ftruncate(int descriptor, off_t bytes) noexcept {
  if (fails(CallKind::kFallocate)) return failWith(ENOSPC);
  return static_cast<int>(::syscall(SYS_ftruncate, descriptor, bytes));
}

pid_t fork() {
  static const auto real = next<pid_t (*)()>("fork");
  if (fails(CallKind::kFork)) return failWith(EAGAIN);
  return real();
}

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const* arguments,
                char* const* environment) {
  static const auto real = next<decltype(&posix_spawn)>("posix_spawn");
  if (fails(CallKind::kFork)) return EAGAIN;
  return real(pid, path, actions, attributes, arguments, environment);
}

int socketpair(int domain, int type, int protocol, int ends[2]) {
  if (fails(CallKind::kSocketpair)) return failWith(EMFILE);
  return static_cast<int>(::syscall(SYS_socketpair, domain, type, protocol, ends));
}

ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  // The error for too many descriptors in flight.
  if (fails(CallKind::kSendmsg)) return failWith(ETOOMANYREFS);
  return ::syscall(SYS_sendmsg, socket, message, flags);
}

ssize_t send(int socket, const void* bytes, size_t count, int flags) {
  // The error of a full socket.
  if (fails(CallKind::kSendmsg)) return failWith(EAGAIN);
  return ::syscall(SYS_sendto, socket, bytes, count, flags, nullptr, 0);
}

ssize_t recvmsg(int socket, msghdr* message, int flags) {
  if (fails(CallKind::kRecvmsg)) return failWith(ENOMEM);
  return ::syscall(SYS_recvmsg, socket, message, flags);
}

int pipe2(int ends[2], int flags) {
  if (fails(CallKind::kPipe)) return failWith(EMFILE);
  return static_cast<int>(::syscall(SYS_pipe2, ends, flags));
}

int pipe(int ends[2]) { return pipe2(ends, 0); }

int eventfd(unsigned int value, int flags) {
  if (fails(CallKind::kEventfd)) return failWith(EMFILE);
  return static_cast<int>(::syscall(SYS_eventfd2, value, flags));
}

int epoll_create1(int flags) {
  if (fails(CallKind::kEpoll)) return failWith(EMFILE);
  return static_cast<int>(::syscall(SYS_epoll_create1, flags));
}

int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) {
  if (operation == EPOLL_CTL_ADD && fails(CallKind::kEpoll)) return failWith(ENOSPC);
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, descriptor, event));
}

int fcntl(int descriptor, int operation, ...) {
  va_list arguments;
  va_start(arguments, operation);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (operation == F_DUPFD_CLOEXEC && fails(CallKind::kDuplicate)) return failWith(EMFILE);
  return static_cast<int>(::syscall(SYS_fcntl, descriptor, operation, argument));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  static const auto real = next<decltype(&pthread_create)>("pthread_create");
  if (fails(CallKind::kThread)) return EAGAIN;
  return real(thread, attributes, body, argument);
}

// The supervisor and the library call the kernel for pidfds directly. glibc's syscall() does
// nothing else.
long syscall(long number, ...) {
  va_list arguments;
  va_start(arguments, number);
  long words[6];
  for (long& word : words) word = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_pidfd_open && fails(CallKind::kPidfdOpen)) return failWith(EMFILE);
  static const auto real = next<long (*)(long, ...)>("syscall");
  return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

}  // extern "C"

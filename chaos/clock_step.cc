// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into every process that chaos starts: CLOCK_REALTIME is ahead of the true time by the
// number in the file ISOPOOL_CHAOS_CLOCK. So chaos can step the clock without changing the
// machine's clock. Waits of the kernel itself on this clock use the true time.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t kSecond = 1'000'000'000;

const std::atomic<int64_t>* mapOffset() {
  static const std::atomic<int64_t> none{0};
  const char* path = std::getenv("ISOPOOL_CHAOS_CLOCK");
  const int file = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return &none;
  void* memory = ::mmap(nullptr, sizeof none, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  return memory == MAP_FAILED ? &none : static_cast<const std::atomic<int64_t>*>(memory);
}

int64_t ahead() {
  static const std::atomic<int64_t>* const offset = mapOffset();
  return offset->load(std::memory_order_relaxed);
}

using ClockGettime = int (*)(clockid_t, timespec*);
int trueTime(clockid_t clock, timespec* time) {
  static const auto original = reinterpret_cast<ClockGettime>(::dlsym(RTLD_NEXT, "clock_gettime"));
  return original(clock, time);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  const int result = trueTime(clock, time);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  const int64_t all = int64_t{time->tv_sec} * kSecond + time->tv_nsec + ahead();
  time->tv_sec = all / kSecond;
  time->tv_nsec = all % kSecond;
  return 0;
}

int gettimeofday(timeval* time, void*) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* result) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace isopool::worker {

/// How the calling thread's processor computes floating-point numbers: rounding, treatment of
/// denormal numbers, exceptions that are not masked (fesetround(), feenableexcept()). Without the
/// flags of exceptions that have happened. On other processors than these nothing.
class FloatingPointControl {
 public:
  static FloatingPointControl ofThisThread() noexcept {
    FloatingPointControl control;
#if defined(__x86_64__)
    control.sse_ = _mm_getcsr() & ~kSseFlags;
    asm volatile("fnstcw %0" : "=m"(control.x87_));
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(control.fpcr_));
#endif
    return control;
  }

  bool operator==(const FloatingPointControl&) const = default;

  void apply() const noexcept {
#if defined(__x86_64__)
    const FloatingPointControl now = ofThisThread();
    if (now.sse_ != sse_) _mm_setcsr(sse_);
    if (now.x87_ == x87_) return;
    // Or the next instruction would raise an exception that is pending.
    asm volatile("fnclex");
    asm volatile("fldcw %0" : : "m"(x87_));
#elif defined(__aarch64__)
    if (ofThisThread().fpcr_ != fpcr_) asm volatile("msr fpcr, %0" : : "r"(fpcr_));
#endif
  }

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kSseFlags = 0x3f;

  uint32_t sse_ = 0;
  uint16_t x87_ = 0;
#elif defined(__aarch64__)
  uint64_t fpcr_ = 0;
#endif
};

}  // namespace isopool::worker

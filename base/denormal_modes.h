// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace isopool::base {

/// How the calling thread's processor treats denormal floating-point numbers, as
/// at::Context::setFlushDenormal() and the compiler's option -ffast-math set it. On arm64 one bit
/// of the processor stands for both. On other processors always false.
struct DenormalModes {
  bool flushToZero = false;       ///< a denormal result becomes 0
  bool denormalsAreZero = false;  ///< a denormal operand counts as 0

  bool operator==(const DenormalModes&) const = default;
};

#if defined(__x86_64__)

inline constexpr uint32_t kFlushToZeroBit = 0x8000;     // of MXCSR
inline constexpr uint32_t kDenormalsAreZeroBit = 0x40;  // of MXCSR

inline DenormalModes denormalModes() noexcept {
  const uint32_t control = _mm_getcsr();
  return {(control & kFlushToZeroBit) != 0, (control & kDenormalsAreZeroBit) != 0};
}

inline void setDenormalModes(const DenormalModes& modes) noexcept {
  uint32_t control = _mm_getcsr() & ~(kFlushToZeroBit | kDenormalsAreZeroBit);
  if (modes.flushToZero) control |= kFlushToZeroBit;
  if (modes.denormalsAreZero) control |= kDenormalsAreZeroBit;
  _mm_setcsr(control);
}

#elif defined(__aarch64__)

inline constexpr uint64_t kFlushToZeroBit = uint64_t{1} << 24;  // of FPCR

inline DenormalModes denormalModes() noexcept {
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  const bool flushes = (control & kFlushToZeroBit) != 0;
  return {flushes, flushes};
}

inline void setDenormalModes(const DenormalModes& modes) noexcept {
  uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  control &= ~kFlushToZeroBit;
  if (modes.flushToZero || modes.denormalsAreZero) control |= kFlushToZeroBit;
  asm volatile("msr fpcr, %0" : : "r"(control));
}

#else

inline DenormalModes denormalModes() noexcept { return {}; }
inline void setDenormalModes(const DenormalModes&) noexcept {}

#endif

}  // namespace isopool::base

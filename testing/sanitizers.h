// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::tests {

/// Whether programs and tests of this build have the address sanitizer in them: its malloc keeps
/// books and holds freed memory back, and a library that has it needs a program that has it.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kUnderAddressSanitizer = true;
#else
inline constexpr bool kUnderAddressSanitizer = false;
#endif

}  // namespace isopool::tests

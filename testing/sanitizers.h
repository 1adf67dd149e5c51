// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace isopool::tests {

/// Whether programs and tests of this build have the address sanitizer. Its malloc uses memory for
/// its records and keeps freed memory, and a library with it needs a program with it.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kUnderAddressSanitizer = true;
#else
inline constexpr bool kUnderAddressSanitizer = false;
#endif

}  // namespace isopool::tests

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Marks what libisopool.so exports. The library is compiled with hidden visibility: a name without
/// this mark can't be linked from outside. tests/abi compares what is exported with a list.
#define ISOPOOL_EXPORT __attribute__((visibility("default")))

/// Marks a function that returns a reference into what outlives the object of the call, so that
/// GCC's -Wdangling-reference does not complain about a call on a temporary object.
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(gnu::no_dangling)
#define ISOPOOL_NO_DANGLING [[gnu::no_dangling]]
#endif
#endif
#if !defined(ISOPOOL_NO_DANGLING)
#define ISOPOOL_NO_DANGLING
#endif

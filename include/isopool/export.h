// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Marks what libisopool.so exports. The library is compiled with hidden visibility: a name without
/// this mark can't be linked from outside. tests/abi compares what is exported with a list.
#define ISOPOOL_EXPORT __attribute__((visibility("default")))

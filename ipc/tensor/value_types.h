// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Declares the types of values, for headers that only name them: torch's own headers of these types
// take most of the compile time of a source file that includes them. A source file that uses a
// value includes <ATen/core/ivalue.h>.

namespace c10 {
struct IValue;
}  // namespace c10

namespace at {
using namespace c10;
class Tensor;
}  // namespace at

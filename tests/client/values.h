// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>

#include "tests/client/harness.h"

namespace isopool::tests {

/// values_model.py's model on the shared manager, asked by the names of its methods.
const Subject& valuesSubject();

/// A value with the types of its containers, as in `List[int] [1, 2]`.
std::string shown(const at::IValue& value);

/// The text with which `use` is refused by isopool itself, having left the worker alive.
std::string refusalOf(const std::function<void()>& use);

bool contains(const std::string& text, const std::string& part);

}  // namespace isopool::tests

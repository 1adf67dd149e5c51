// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>

#include "tests/client/harness.h"

namespace isopool::tests {

/// The model of values_model.py on the shared manager. Its methods are called by name.
const Subject& valuesSubject();

/// A value with the types of its containers, as in `List[int] [1, 2]`.
std::string shown(const at::IValue& value);

/// The text with which isopool itself refuses `use`. Expects that the worker survives.
std::string refusalOf(const std::function<void()>& use);

bool contains(const std::string& text, const std::string& part);

}  // namespace isopool::tests

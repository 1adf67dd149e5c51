// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>

#include "chaos/history/record.h"

namespace chaos {

/// Writes into the record which documented failure this is, or kWrong if docs/errors.md does not
/// describe it. A manager's load may fail in one more way: its package can't be read.
void describeFailure(Record& record, const std::exception_ptr& failure);

void setText(Record& record, const char* text);

}  // namespace chaos

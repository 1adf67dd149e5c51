// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <vector>

namespace isopool::fuzz {

/// Touches the first and the last byte of every tensor in a value, and every byte of small ones: if
/// one reaches beyond its memory, the process dies. Ends it also if a tensor is not as its storage.
void touchTensors(const at::IValue& value);

/// A payload with these elements, all storages inside it.
std::vector<std::byte> payloadOf(const std::vector<at::IValue>& elements);

/// Storages on the heap for a payload that payloadOf() made.
std::vector<at::IValue> elementsOf(const std::vector<std::byte>& payload);

}  // namespace isopool::fuzz

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <vector>

namespace isopool::fuzz {

/// Reads the first and the last byte of every tensor in a value, and every byte of small tensors.
/// The process ends if a tensor reaches beyond its memory or its storage.
void touchTensors(const at::IValue& value);

/// A payload with these elements; all storages are inside the payload.
std::vector<std::byte> payloadOf(const std::vector<at::IValue>& elements);

/// The elements of a payload that payloadOf() has made, with their storages on the heap.
std::vector<at::IValue> elementsOf(const std::vector<std::byte>& payload);

}  // namespace isopool::fuzz

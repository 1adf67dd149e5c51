// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "isopool/isopool.h"

namespace tools {

/// Calls the model once, for the benchmark's thread with this number. Thread-safe.
using WorkItem = std::function<void(size_t thread, std::vector<at::IValue> inputs)>;

/// The inputs in the package's pickle model/example.pkl: a tuple with the arguments of one call.
/// Throws isopool::RemoteError if the pickle does not exist, and isopool::Error if its value can't
/// be passed to this process.
std::vector<at::IValue> exampleInputs(isopool::Package& package);

/// Calls the package's model/model.pkl in the workers' Python, on the CPU.
WorkItem pythonModel(isopool::Package& package);
/// The same with a copy of the model in CUDA memory for each of the first `workers` workers. Thread
/// t calls worker t modulo `workers`.
WorkItem cudaModel(isopool::InterpreterManager& manager, isopool::Package& package, size_t workers);
/// The number of CUDA devices that a worker can use.
size_t cudaDevices(isopool::InterpreterManager& manager);

/// Calls a TorchScript module in this process, which all threads share.
WorkItem scriptModel(const std::string& file);

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "isopool/isopool.h"

namespace tools {

/// One call of the model by one of the benchmark's threads; any number of threads at once.
using WorkItem = std::function<void(size_t thread, std::vector<at::IValue> inputs)>;

/// The inputs in the package's pickle model/example.pkl: a tuple with one call's arguments. Throws
/// isopool::RemoteError if there is none, isopool::Error if it is no value that can cross.
std::vector<at::IValue> exampleInputs(isopool::Package& package);

/// The package's model/model.pkl in the workers' Python, on the CPU.
WorkItem pythonModel(isopool::Package& package);
/// The same with a copy of the model in CUDA memory for each of the first `workers` workers; thread
/// t uses worker t modulo their number.
WorkItem cudaModel(isopool::InterpreterManager& manager, isopool::Package& package, size_t workers);
/// CUDA devices that a worker sees.
size_t cudaDevices(isopool::InterpreterManager& manager);

/// A TorchScript module in this very process, shared by all threads.
WorkItem scriptModel(const std::string& file);

}  // namespace tools

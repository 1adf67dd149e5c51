// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "worker/backends/model_functions.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void defineObject(RunningCall& call, ClientLink& channel) {
  const base::ObjectId id(call.reader().integer(0));
  if (channel.objects.find(id) == nullptr) {
    Package& file = call.package(channel, 1);
    const PyRef format = call.boundedText(2, ipc::kMostFormatNameBytes);
    const PyRef options = call.boundedText(3, ipc::kMostModelOptionsBytes);
    ShownModels::Name name = call.modelName(4);
    const bool own = (call.received().flags & ipc::kOwnMemory) != 0 || !file.isFirstLoad();
    PyRef loaded = loadModel(file, format.get(), options.get(),
                             own ? MemoryOfModel::kOwn : MemoryOfModel::kOfFile);
    if (!loaded) {
      // What was half made, if no importer has it.
      if (file.usedImporter() == nullptr) call.control().requestCollection();
      throw PythonRaised{};
    }
    flushOutput();
    channel.objects.set(id, std::move(loaded), std::move(name));
  }
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations

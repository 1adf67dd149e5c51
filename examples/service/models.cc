// SPDX-License-Identifier: BSD-3-Clause
#include "examples/service/models.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace service {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr int64_t kSampleRate = 16000;
constexpr int64_t kContext = 64;  // samples of the previous chunk that the ONNX voice model takes

/// As package_models.py writes expected answers: a tensor is the list of its numbers.
json toJson(const at::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor numbers = value.toTensor().to(at::kDouble).contiguous().view(-1);
    const auto* first = numbers.const_data_ptr<double>();
    return std::vector<double>(first, first + numbers.numel());
  }
  if (value.isString()) return value.toStringRef();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isGenericDict()) {
    json object = json::object();
    for (const auto& entry : value.toGenericDict()) {
      object[entry.key().toStringRef()] = toJson(entry.value());
    }
    return object;
  }
  json array = json::array();
  const std::vector<at::IValue> parts =
      value.isTuple() ? value.toTuple()->elements().vec() : value.toListRef().vec();
  for (const at::IValue& part : parts) array.push_back(toJson(part));
  return array;
}

/// The time that is left of a request, for the next call.
isopool::CallOptions timeLeft(const Request& request) {
  isopool::CallOptions options;
  options.deadline = request.deadline - Clock::now();
  return options;
}

/// A model without state: if its worker dies, another one makes the call again.
json callOnce(const isopool::ReplicatedObj& model, Request& request) {
  isopool::CallOptions options = timeLeft(request);
  options.idempotent = true;
  return toJson(model.call(request.arguments, {}, options));
}

/// A generator: each item is sent when it is there. Its worker keeps the model's cache, so a death
/// of the worker ends it.
json streamItems(const isopool::ReplicatedObj& model, Request& request) {
  json items = json::array();
  isopool::ResultStream stream = model.stream(request.arguments, {}, timeLeft(request));
  for (const at::IValue& item : stream) {
    items.push_back(toJson(item));
    request.sendItem(items.back());
  }
  return items;
}

/// One pass over the chunks of a recording, in a session with a replica of the model of its own.
json followSound(const isopool::ReplicatedObj& model, Request& request) {
  std::optional<isopool::InterpreterSession>& session = request.conversation.voice;
  if (!session) {
    isopool::SessionOptions own;
    own.ownReplica = true;
    session.emplace(model.acquireSession(own, timeLeft(request)));
  }
  std::ignore = session->self.attr("reset_states", timeLeft(request))
                    .call(std::vector<at::IValue>(), {}, timeLeft(request));
  json probabilities = json::array();
  for (const at::Tensor& chunk : request.arguments.at(0).toTensor().unbind()) {
    const isopool::Obj found =
        session->self.call({chunk.unsqueeze(0), kSampleRate}, {}, timeLeft(request));
    probabilities.push_back(found.toIValue(timeLeft(request)).toTensor().item<double>());
  }
  return probabilities;
}

/// State in a worker. If it is lost with its worker, the recording is read again from its start in
/// a new session.
json followSoundAgain(const isopool::ReplicatedObj& model, Request& request) {
  for (;;) {
    try {
      return followSound(model, request);
    } catch (const isopool::WorkerLost&) {
      request.conversation.voice.reset();
    } catch (const isopool::SupervisorLost&) {
      request.conversation.voice.reset();
      if (Clock::now() >= request.deadline) throw;
    } catch (...) {
      request.conversation.voice.reset();  // after a deadline its worker may be gone, too
      throw;
    }
  }
}

/// State in this program: each call takes it and returns the next, so any worker can make the next
/// call, and a call can be made again.
json passStateAlong(const isopool::ReplicatedObj& model, Request& request) {
  at::Tensor state = at::zeros({2, 1, 128});
  at::Tensor context = at::zeros({1, kContext});
  json probabilities = json::array();
  for (const at::Tensor& chunk : request.arguments.at(0).toTensor().unbind()) {
    const at::Tensor sound = at::cat({context, chunk.unsqueeze(0)}, 1);
    isopool::CallOptions options = timeLeft(request);
    options.idempotent = true;
    const at::IValue result =
        model.call({sound, state, at::scalar_tensor(kSampleRate, at::kLong)}, {}, options);
    const auto& outputs = result.toTupleRef().elements();
    probabilities.push_back(outputs[0].toTensor().item<double>());
    state = outputs[1].toTensor();
    context = sound.slice(1, -kContext);
  }
  return probabilities;
}

struct Kind {
  const char* file;
  seconds time;
  json (*serve)(const isopool::ReplicatedObj&, Request&);
};

constexpr Kind kKinds[] = {
    {"voice_script.jit", seconds(20), followSoundAgain},
    {"voice_onnx.onnx", seconds(20), passStateAlong},
    {"resnet.jit", seconds(10), callOnce},
    {"file_type.pt", seconds(10), callOnce},
    {"text_reader.pt", seconds(30), callOnce},
    {"crystal_energy.pt", seconds(20), callOnce},
    {"text_writer.pt", seconds(20), streamItems},
};

c10::Dict<at::IValue, at::IValue> readInputs(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error(file + " can't be read: run package_models.py");
  const std::vector<char> bytes(std::istreambuf_iterator<char>(stream), {});
  // Into shared memory: a call then passes its input without a copy.
  const isopool::SharedMemoryGuard shared;
  return torch::jit::pickle_load(bytes).toGenericDict();
}

}  // namespace

Models::Models(isopool::InterpreterManager& pool, const std::string& folder) {
  const c10::Dict<at::IValue, at::IValue> inputs = readInputs(folder + "/inputs.pt");
  for (const Kind& kind : kKinds) {
    const std::filesystem::path file = std::filesystem::path(folder) / kind.file;
    const std::string name = file.stem();
    if (!inputs.contains(name)) continue;
    Model model;
    model.object = file.extension() == ".pt"
                       ? pool.loadPackage(file).loadPickle("model", "model.pkl")
                       : pool.loadModel(file);
    model.time = kind.time;
    model.serve = kind.serve;
    for (const at::IValue& arguments : inputs.at(name).toListRef()) {
      model.inputs.push_back(arguments.toTupleRef().elements().vec());
    }
    // A worker that replaces a dead one has made this call before it takes a request.
    if (kind.serve == callOnce) model.object.warmUp(model.inputs.at(0));
    models_.emplace(name, std::move(model));
  }
}

std::string Models::names() const {
  std::string names;
  for (const auto& [name, model] : models_) names += (names.empty() ? "" : ", ") + name;
  return names;
}

json Models::answer(const std::string& model, size_t input, Conversation& conversation,
                    const std::function<void(const json&)>& sendItem) const {
  const Model& chosen = models_.at(model);
  Request request{chosen.inputs.at(input), Clock::now() + chosen.time, conversation, sendItem};
  return chosen.serve(chosen.object, request);
}

}  // namespace service

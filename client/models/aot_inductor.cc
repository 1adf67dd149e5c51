// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "client/models/model_formats.h"
#include "client/models/pt2_archive.h"

namespace isopool::client {

namespace {

constexpr std::string_view kCompiledFolder = "data/aotinductor/";

bool endsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The models of a .pt2, each a folder.
std::set<std::string> compiledModels(const std::vector<std::string>& records) {
  std::set<std::string> names;
  for (const std::string& record : records) {
    if (record.rfind(kCompiledFolder, 0) != 0) continue;
    const size_t end = record.find('/', kCompiledFolder.size());
    if (end != std::string::npos) {
      names.insert(record.substr(kCompiledFolder.size(), end - kCompiledFolder.size()));
    }
  }
  return names;
}

std::string chosenModel(const std::set<std::string>& models, const std::string& wanted) {
  if (wanted.empty() && models.size() == 1) return *models.begin();
  const std::string name = wanted.empty() ? "model" : wanted;
  TORCH_CHECK(models.count(name) != 0, "it has no model called ", name,
              ". Its models, of which loadModel's second argument names one: ", joined(models));
  return name;
}

void checkDevice(ModelFile& file, const std::string& metadata) {
  const auto json = base::Json::parse(file.text(metadata), nullptr, false);
  const std::string device = json.is_object() ? json.value("AOTI_DEVICE_KEY", "") : "";
  TORCH_CHECK(
      device.empty() || device == "cpu", "it was compiled for ", device,
      ", and workers run AOTInductor's models on the CPU alone. Export and compile the model "
      "on the CPU");
}

bool matches(ModelFile& file) { return isPt2ArchiveWith(file, kCompiledFolder); }

PreparedModel prepare(ModelFile& file, const std::string& wanted) {
  ModelFile::Records& records = file.records();
  const std::vector<std::string> all = records.getAllRecords();
  const std::string model = chosenModel(compiledModels(all), wanted);
  const std::string folder = std::string(kCompiledFolder) + model + "/";
  std::vector<std::string> libraries;
  for (const std::string& record : all) {
    TORCH_CHECK(
        record.rfind("data/constants/custom_obj_", 0) != 0,
        "it holds objects of custom classes, which can't be loaded in a worker. Keep them out "
        "of the compiled model, or use torch.package");
    if (record.rfind(folder, 0) != 0) continue;
    if (endsWith(record, ".so")) libraries.push_back(record);
    if (endsWith(record, "_metadata.json")) checkDevice(file, record);
    TORCH_CHECK(!endsWith(record, "/weights_config.json"),
                "its weights lie beside its library. Compile it with the option "
                "aot_inductor.package_constants_in_so");
  }
  TORCH_CHECK(libraries.size() == 1, "the model ", model, " in it has ", libraries.size(),
              " libraries instead of one. Compile it with torch._inductor.aoti_compile_and_package "
              "and without options that leave the library to be built or split it");
  const std::string stem = libraries[0].substr(0, libraries[0].size() - 3);
  // The operators that the library calls through torch's dispatcher.
  std::string operators;
  if (records.hasRecord(stem + ".json")) operators = file.text(stem + ".json");
  // What deflate can make of a byte at most; a damaged archive may claim gigabytes.
  constexpr size_t kMostInflated = 1032;
  const size_t claimed = records.getRecordSize(libraries[0]);
  TORCH_CHECK(claimed / kMostInflated <= file.bytes().size(), "its record ", libraries[0],
              " claims ", claimed, " bytes, more than the file can hold: the file is damaged");
  auto [data, size] = records.getRecord(libraries[0]);
  return {std::move(operators), PreparedModel::Part{std::move(data), size}};
}

}  // namespace

const ModelFormat kAotInductor = {
    .name = "aot_inductor",
    .description = "a model compiled by AOTInductor",
    .matches = &matches,
    .prepare = &prepare,
};

}  // namespace isopool::client

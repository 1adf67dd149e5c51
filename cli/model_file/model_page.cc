// SPDX-License-Identifier: BSD-3-Clause
#include "cli/model_file/model_page.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "base/terminal_text.h"
#include "cli/wording.h"

namespace isopool::cli {

namespace {

using base::Json;

constexpr size_t kLabelWidth = 13;

std::string line(std::string label, const std::string& text) {
  label.resize(kLabelWidth, ' ');
  return label + text + "\n";
}

std::string shapeText(const ModelValue& value) {
  if (!value.shape) return "";
  std::string text = " [";
  for (const int64_t size : *value.shape) {
    if (text.size() > 2) text += ", ";
    text += size < 0 ? "?" : std::to_string(size);
  }
  return text + "]";
}

// One line per value; the label stands in the first.
std::string valueLines(const std::string& label, const std::vector<ModelValue>& values) {
  if (values.empty()) return line(label, "not stated");
  size_t width = 0;
  for (const ModelValue& each : values) {
    width = std::max(width, base::columnsOf(base::terminalText(each.name)));
  }
  std::string lines;
  for (const ModelValue& each : values) {
    std::string name = base::terminalText(each.name);
    name.append(width - base::columnsOf(name), ' ');
    lines += line(lines.empty() ? label : "",
                  name + "  " + base::terminalText(each.type) + shapeText(each));
  }
  return lines;
}

std::string loadedHow(const std::string& sandbox) {
  if (sandbox == "strict") return "in a worker with the sandbox strict";
  return "in a worker with the sandbox " + sandbox + ": the file's code could do what user " +
         std::to_string(::geteuid()) + " may";
}

Json valuesJson(const std::vector<ModelValue>& values) {
  Json all = Json::array();
  for (const ModelValue& each : values) {
    Json shape;
    if (each.shape) {
      shape = Json::array();
      for (const int64_t size : *each.shape) shape.push_back(size < 0 ? Json() : Json(size));
    }
    all.push_back({{"name", each.name}, {"dtype", each.type}, {"shape", std::move(shape)}});
  }
  return all;
}

}  // namespace

std::string modelPage(const ModelInfo& model, const std::string& sandbox) {
  std::string page = line("model", base::terminalText(model.name));
  page += line("file", base::terminalText(model.file) + ", " + wordsForBytes(model.bytes));
  page += line("format", base::terminalText(model.format) +
                             (model.pythonVersion.empty()
                                  ? ""
                                  : ", made by Python " + base::terminalText(model.pythonVersion)));
  if (!model.version.empty()) page += line("version", base::terminalText(model.version));
  if (!model.description.empty())
    page += line("description", base::terminalText(model.description));
  if (!model.externModules.empty()) {
    std::string modules;
    for (const std::string& each : model.externModules) {
      modules += (modules.empty() ? "" : ", ") + base::terminalText(each);
    }
    page += line("needs", modules);
  }
  page += valueLines("inputs", model.inputs);
  page += valueLines("outputs", model.outputs);
  page += line("loaded", loadedHow(sandbox));
  return page;
}

std::string modelJson(const ModelInfo& model, const std::string& sandbox) {
  return base::jsonText({{"name", model.name},
                         {"sandbox", sandbox},
                         {"file", model.file},
                         {"bytes", model.bytes},
                         {"format", model.format},
                         {"version", model.version},
                         {"description", model.description},
                         {"python_version", model.pythonVersion},
                         {"extern_modules", model.externModules},
                         {"inputs", valuesJson(model.inputs)},
                         {"outputs", valuesJson(model.outputs)}});
}

}  // namespace isopool::cli

// SPDX-License-Identifier: BSD-3-Clause
#include "tests/client/values.h"

#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>

#include <sstream>

namespace isopool::tests {

namespace {

std::string shownNumber(double number) {
  std::ostringstream text;
  text << number;
  return text.str().find_first_of(".en") == std::string::npos ? text.str() + ".0" : text.str();
}

std::string shownTensor(const at::Tensor& tensor) {
  std::ostringstream text;
  text << toString(tensor.scalar_type()) << " " << tensor.sizes() << " [";
  const at::Tensor flat = tensor.reshape({-1}).to(at::kDouble);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    text << (i > 0 ? ", " : "") << flat[i].item<double>();
  }
  return text.str() + "]";
}

}  // namespace

const Subject& valuesSubject() {
  static const Subject* const subject = [] {
    auto* model = new Subject(
        sharedManager().loadPackage(packagePath("values.pt")).loadPickle("model", "model.pkl"));
    // Destroys the model before its manager.
    class End : public ::testing::Environment {
     public:
      explicit End(Subject* subject) : subject_(subject) {}
      void TearDown() override { delete subject_; }

     private:
      Subject* subject_;
    };
    ::testing::AddGlobalTestEnvironment(new End(model));
    return model;
  }();
  return *subject;
}

std::string shown(const at::IValue& value) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (value.isNone()) return "None";
  if (value.isTensor()) return shownTensor(value.toTensor());
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return shownNumber(value.toDouble());
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return shownNumber(number.real()) + "+" + shownNumber(number.imag()) + "j";
  }
  if (value.isString()) return '"' + value.toStringRef() + '"';
  if (value.isDevice()) return value.toDevice().str();
  if (value.isTuple()) {
    for (const at::IValue& element : value.toTupleRef().elements()) add(shown(element));
    return "(" + text + ")";
  }
  if (value.isList()) {
    const auto list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) add(shown(list.get(i)));
    return "List[" + list.elementType()->annotation_str() + "] [" + text + "]";
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    for (const auto& entry : dict) add(shown(entry.key()) + ": " + shown(entry.value()));
    return "Dict[" + dict.keyType()->annotation_str() + ", " + dict.valueType()->annotation_str() +
           "] {" + text + "}";
  }
  return "a " + value.tagKind();
}

namespace {

std::vector<std::optional<int>> processesOfWorkers() {
  std::vector<std::optional<int>> processes;
  for (const Interpreter& each : sharedManager().allInstances())
    processes.push_back(each.processId());
  return processes;
}

}  // namespace

std::string refusalOf(const std::function<void()>& use) {
  const auto processes = processesOfWorkers();
  std::string text;
  try {
    use();
    ADD_FAILURE() << "it was accepted";
  } catch (const RemoteError& error) {
    ADD_FAILURE() << "Python raised: " << error.what();
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_GT(sharedSubject().number("pid"), 0);
  EXPECT_EQ(processesOfWorkers(), processes) << "a worker did not survive";
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace isopool::tests

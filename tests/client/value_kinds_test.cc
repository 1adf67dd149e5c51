// SPDX-License-Identifier: BSD-3-Clause
// docs/values.md has a row for each kind of value. This file tests each refusal in that table.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/blob.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/SymNodeImpl.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "tests/client/values.h"

namespace isopool::tests {
namespace {

struct Kind {
  const char* name;
  std::function<at::IValue()> make;
  const char* said;  ///< a part of the refusal's text
};

void PrintTo(const Kind& kind, std::ostream* stream) { *stream << kind.name; }

class Argument : public ::testing::TestWithParam<Kind> {};

TEST_P(Argument, OfAKindThatCantCrossIsRefusedWithAWayOut) {
  const at::IValue value = GetParam().make();
  const std::string text = refusalOf([&] { valuesSubject().ask("identity", {value}); });
  EXPECT_TRUE(contains(text, GetParam().said)) << text;
  EXPECT_TRUE(contains(text, "can't cross")) << text;
  // The value is also refused within a container, as a named argument and in a session.
  const at::IValue inside = c10::ivalue::Tuple::create({at::IValue(1), value});
  EXPECT_EQ(refusalOf([&] { valuesSubject().ask("identity", {inside}); }), text);
  InterpreterSession session = sharedManager().acquireOne();
  const std::string reason = refusalOf([&] { session.fromIValue(value); });
  EXPECT_EQ(text.substr(0, 5), "args[");
  EXPECT_EQ(text.substr(text.find("]: ") + 3), reason);
  EXPECT_EQ(refusalOf([&] {
              session.global("builtins", "dict").callKwargs({{"x", value}});
            }),
            "kwargs['x']: " + reason);
}

struct Custom : torch::CustomClassHolder {};

at::IValue customObject() {
  static const auto registered = torch::class_<Custom>("isopool_client_test", "Custom");
  return at::IValue(c10::make_intrusive<Custom>());
}

at::IValue enumValue() {
  const auto type =
      c10::EnumType::create(c10::QualifiedName("__torch__.Colour"), c10::IntType::get(),
                            {{"RED", at::IValue(1)}}, std::weak_ptr<torch::jit::CompilationUnit>());
  return at::IValue(c10::make_intrusive<c10::ivalue::EnumHolder>(type, "RED", at::IValue(1)));
}

/// A symbolic number, as used while a model is traced.
class Symbol : public c10::SymNodeImpl {
 public:
  bool is_int() override { return true; }
  bool is_float() override { return false; }
  bool is_bool() override { return false; }
};

at::Tensor nestedTensor() {
  return at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})});
}

INSTANTIATE_TEST_SUITE_P(
    ValueKind, Argument,
    ::testing::Values(
        Kind{"Coo", [] { return at::eye(3).to_sparse(); }, "layout Sparse"},
        Kind{"Csr", [] { return at::eye(3).to_sparse_csr(); }, "call .to_dense()"},
        Kind{"Csc", [] { return at::eye(3).to_sparse_csc(); }, "call .to_dense()"},
        Kind{"Bsr",
             [] {
               return at::eye(4).to_sparse_bsr({2, 2});
             },
             "call .to_dense()"},
        Kind{"Bsc",
             [] {
               return at::eye(4).to_sparse_bsc({2, 2});
             },
             "call .to_dense()"},
        Kind{"Mkldnn", [] { return at::ones({3}).to_mkldnn(); }, "call .to_dense()"},
        Kind{"Meta", [] { return at::empty({3}, at::kMeta); }, "a meta tensor has no data"},
        Kind{"Nested", [] { return nestedTensor(); }, ".unbind()"},
        Kind{"Quantised", [] { return at::quantize_per_tensor(at::ones({4}), 0.1, 0, at::kQInt8); },
             "call .dequantize()"},
        Kind{"QuantisedPerChannel",
             [] {
               return at::quantize_per_channel(at::ones({2, 2}), at::full({2}, 0.1),
                                               at::zeros({2}, at::kLong), 0, at::kQUInt8);
             },
             "call .dequantize()"},
        Kind{"ZeroTensor", [] { return at::_efficientzerotensor({3}, at::kFloat); }, ".clone()"},
        Kind{"Storage", [] { return at::IValue(at::ones({3}).storage()); },
             "kind Storage can't cross between processes: pass a tensor that lies in it"},
        Kind{"UInt", [] { return at::IValue(std::numeric_limits<uint64_t>::max()); },
             "kind UInt can't cross between processes: pass a number below 2^63"},
        Kind{"SymInt",
             [] { return at::IValue(c10::SymInt(c10::SymNode(c10::make_intrusive<Symbol>()))); },
             "kind SymInt can't cross between processes: pass a number"},
        Kind{"Stream",
             [] { return at::IValue(c10::Stream(c10::Stream::DEFAULT, c10::Device("cpu"))); },
             "kind Stream can't cross between processes: make the stream"},
        Kind{"Generator", [] { return at::IValue(at::make_generator<at::CPUGeneratorImpl>()); },
             "kind Generator can't cross between processes: pass a seed"},
        Kind{"Quantizer",
             [] {
               return at::IValue(
                   at::quantize_per_tensor(at::ones({4}), 0.1, 0, at::kQInt8).quantizer());
             },
             "kind Quantizer can't cross"},
        Kind{"Enum", [] { return enumValue(); },
             "kind Enum can't cross between processes: pass its value"},
        Kind{"Future",
             [] {
               return at::IValue(c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get()));
             },
             "kind Future can't cross between processes: wait for it"},
        Kind{"Await",
             [] {
               return at::IValue(c10::make_intrusive<c10::ivalue::Await>(
                   c10::IntType::get(), [] { return at::IValue(1); }));
             },
             "kind Await can't cross between processes: wait for it"},
        Kind{"Object", [] { return customObject(); },
             "kind Object can't cross between processes: pass its attributes"},
        Kind{"Capsule", [] { return at::IValue::make_capsule(c10::make_intrusive<Custom>()); },
             "kind Capsule can't cross"},
        Kind{"Blob", [] { return at::IValue(c10::make_intrusive<caffe2::Blob>()); },
             "kind Blob can't cross"},
        Kind{"Uninitialized", [] { return at::IValue::uninitialized(); },
             "kind Uninitialized can't cross"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ValueKind, ASymbolicNumberThatIsKnownIsANumber) {
  EXPECT_EQ(valuesSubject().text("describe", {at::IValue(c10::SymInt(5))}), "int 5");
  EXPECT_EQ(valuesSubject().text("describe", {at::IValue(c10::SymFloat(0.5))}), "float 0.5");
  EXPECT_EQ(valuesSubject().text("describe", {at::IValue(c10::SymBool(true))}), "bool True");
}

TEST(ValueKind, AScalarIsTheNumberThatItHolds) {
  EXPECT_EQ(valuesSubject().text("describe", {at::IValue(at::Scalar(2.5))}), "float 2.5");
  EXPECT_EQ(valuesSubject().text("describe", {at::IValue(at::Scalar(int64_t{3}))}), "int 3");
  EXPECT_EQ(valuesSubject().text("describe", {at::IValue(at::Scalar(true))}), "bool True");
}

TEST(ValueKind, AStringThatIsNotUtf8IsRefusedWithAWayOut) {
  const std::string bytes("\xff\x00\xfe", 3);
  for (const at::IValue& value : {at::IValue(bytes), at::IValue(c10::List<std::string>({bytes}))}) {
    const std::string text = refusalOf([&] { valuesSubject().ask("identity", {value}); });
    EXPECT_TRUE(contains(text, "pass a tensor of dtype uint8 with these bytes")) << text;
  }
}

TEST(ValueKind, ADictWithANanKeyIsRefused) {
  c10::Dict<double, int64_t> dict;
  dict.insert(std::nan(""), 1);
  const std::string text = refusalOf([&] { valuesSubject().ask("identity", {dict}); });
  EXPECT_TRUE(contains(text, "a dict with a NaN key can't cross")) << text;
}

TEST(ValueKind, AListThatHoldsItselfIsRefused) {
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(list);
  EXPECT_TRUE(contains(refusalOf([&] { valuesSubject().ask("identity", {list}); }), "64 deep"));
  list.clear();
}

// ---- results ---------------------------------------------------------------------------------

struct BadResult {
  const char* kind;  ///< of values_model.KINDS
  const char* said;
};

void PrintTo(const BadResult& result, std::ostream* stream) { *stream << result.kind; }

class ResultKind : public ::testing::TestWithParam<BadResult> {};

TEST_P(ResultKind, ThatCantCrossIsRefusedByBothConversions) {
  CallOptions permissive;
  permissive.permissive = true;
  const std::string strictly = refusalOf([] { valuesSubject().ask("made", {GetParam().kind}); });
  EXPECT_TRUE(contains(strictly, GetParam().said)) << strictly;
  EXPECT_FALSE(
      refusalOf([&] { valuesSubject().ask("made", {GetParam().kind}, permissive); }).empty());
  InterpreterSession session = valuesSubject().object().acquireSession();
  const Obj result = session.self({"made", GetParam().kind});
  const std::string ofObj = refusalOf([&] { result.toIValue(); });
  EXPECT_TRUE(contains(ofObj, GetParam().said)) << ofObj;
}

INSTANTIATE_TEST_SUITE_P(
    ValueKind, ResultKind,
    ::testing::Values(
        BadResult{"coo", "call .to_dense()"}, BadResult{"csr", "call .to_dense()"},
        BadResult{"csc", "call .to_dense()"}, BadResult{"bsr", "call .to_dense()"},
        BadResult{"mkldnn", "call .to_dense()"}, BadResult{"meta", "a meta tensor has no data"},
        BadResult{"nested tensor", ".unbind()"}, BadResult{"jagged tensor", ".unbind()"},
        BadResult{"quantised", "call .dequantize()"}, BadResult{"fake", "without data of its own"},
        BadResult{"zero tensor", ".clone()"}, BadResult{"wrapping", "without data of its own"},
        BadResult{"module", "Cannot infer concrete type of torch.nn.Module"},
        BadResult{"script module", "Cannot infer concrete type of torch.nn.Module"},
        BadResult{"generator",
                  "instead got value of type generator. Take its items one by one by "
                  "ReplicatedObj::stream()"},
        BadResult{"NaN key", "a dict with a NaN key"},
        BadResult{"crowded keys", "nearly equal hashes"},
        BadResult{"torch generator", "instead got value of type Generator"},
        BadResult{"stream", "instead got value of type Stream"},
        BadResult{"storage", "instead got value of type UntypedStorage"},
        BadResult{"future", "instead got value of type Future"},
        BadResult{"symbolic", "instead got value of type SymInt"},
        BadResult{"class", "instead got value of type type"},
        BadResult{"object", "instead got value of type Plain"},
        BadResult{"huge integer", "64 bits"}, BadResult{"surrogate", "UTF-8"},
        BadResult{"None key", "Cannot create dict for key type 'NoneType'"},
        BadResult{"endless", "contains itself"}),
    [](const auto& test) {
      std::string name = test.param.kind;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

}  // namespace
}  // namespace isopool::tests

// SPDX-License-Identifier: BSD-3-Clause
// The permissive conversion of results, compared with the strict one.
#include <algorithm>
#include <cctype>

#include "tests/client/values.h"

namespace isopool::tests {
namespace {

CallOptions permissive() {
  CallOptions options;
  options.permissive = true;
  return options;
}

at::IValue made(const std::string& kind) {
  return valuesSubject().ask("made", {kind}, permissive());
}

at::IValue madeStrictly(const std::string& kind) { return valuesSubject().ask("made", {kind}); }

std::string parameterName(const std::string& kind) {
  std::string name = kind;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// ---- kinds that the strict conversion supports -----------------------------------------------

struct Result {
  const char* kind;   ///< of values_model.KINDS
  const char* value;  ///< as shown() prints it
};

void PrintTo(const Result& result, std::ostream* stream) { *stream << result.kind; }

class StrictResult : public ::testing::TestWithParam<Result> {};

TEST_P(StrictResult, IsTheSameUnderBothConversions) {
  EXPECT_EQ(shown(madeStrictly(GetParam().kind)), GetParam().value);
  EXPECT_EQ(shown(made(GetParam().kind)), GetParam().value);
}

INSTANTIATE_TEST_SUITE_P(
    Permissive, StrictResult,
    ::testing::Values(
        Result{"none", "None"}, Result{"bool", "True"}, Result{"int", "7"}, Result{"float", "2.5"},
        Result{"complex", "1.0+-2.0j"}, Result{"str", "\"text\""}, Result{"device", "cpu"},
        Result{"dtype", "7"}, Result{"layout", "0"}, Result{"size", "(2, 3)"},
        Result{"ints", "List[int] [1, 2]"},
        Result{"list with None", "List[Optional[Tensor]] [Float [1] [1], None]"},
        Result{"nested",
               "Dict[str, List[Tuple[int, str]]] {\"a\": List[Tuple[int, str]] [(1, \"b\")]}"},
        Result{"tuple", "(1, \"b\", None)"}, Result{"empty tuple", "()"},
        Result{"named tuple", "(1, 2.5)"},
        Result{"ordered dict", "Dict[str, int] {\"b\": 2, \"a\": 1}"},
        Result{"int keys", "Dict[int, str] {2: \"two\", 1: \"one\"}"}, Result{"int enum", "3"},
        Result{"parameter", "Float [2] [1, 1]"}, Result{"numpy float64", "0.5"}),
    [](const auto& test) { return parameterName(test.param.kind); });

TEST(Permissive, BytesBecomeATensorAndTextsAString) {
  EXPECT_EQ(madeStrictly("bytes").toStringRef(), std::string("\x00\xff"
                                                             "b",
                                                             3));
  EXPECT_EQ(shown(made("bytes")), "Byte [3] [0, 255, 98]");
}

// ---- kinds that only the permissive conversion supports --------------------------------------

class PermissiveResult : public ::testing::TestWithParam<Result> {};

TEST_P(PermissiveResult, IsAValueWhereTheStrictConversionRefuses) {
  EXPECT_EQ(shown(made(GetParam().kind)), GetParam().value);
  const std::string strictly = refusalOf([] { madeStrictly(GetParam().kind); });
  EXPECT_TRUE(contains(strictly, "Tracer cannot infer type of ")) << strictly;
}

INSTANTIATE_TEST_SUITE_P(
    Permissive, PermissiveResult,
    ::testing::Values(
        Result{"empty list", "List[Any] []"}, Result{"empty dict", "Dict[Any, Any] {}"},
        Result{"empty lists in a list", "List[Any] [List[Any] [], List[int] [1]]"},
        Result{"mixed list", "List[Any] [1, 2.0, \"three\"]"},
        Result{"bool and int", "List[Any] [True, 1]"},
        Result{"mixed dict",
               "Dict[str, Any] {\"tensor\": Float [2] [1, 1], \"list\": List[Tensor] [Float [1] "
               "[0]], \"n\": 3}"},
        Result{"mixed keys", "Dict[Any, int] {\"a\": 1, 2: 3}"}, Result{"set", "List[int] [5]"},
        Result{"frozenset", "List[str] [\"x\"]"}, Result{"range", "List[int] [0, 1, 2]"},
        Result{"deque", "List[int] [1, 2]"}, Result{"dict keys", "List[str] [\"k\"]"},
        Result{"user dict", "Dict[str, int] {\"k\": 1}"},
        Result{"mapping", "Dict[str, List[Any]] {\"k\": List[Any] [1, \"x\"]}"},
        Result{"bytearray", "Byte [2] [97, 98]"}, Result{"enum", "\"red\""},
        Result{"enum key", "Dict[str, int] {\"red\": 1}"},
        Result{
            "dataclass",
            "Dict[str, Any] {\"tensor\": Float [1] [1], \"inner\": Dict[str, Optional[List[Any]]] "
            "{\"numbers\": List[Any] [], \"label\": None}}"},
        Result{"array", "Float [2, 3] [0, 1, 2, 3, 4, 5]"},
        Result{"transposed array", "Short [3, 2] [0, 3, 1, 4, 2, 5]"},
        Result{"reversed array", "Long [3] [2, 1, 0]"},
        Result{"big-endian array", "Int [3] [0, 1, 2]"},
        Result{"read-only array", "Int [3] [0, 1, 2]"}, Result{"0-dim array", "Long [] [5]"},
        Result{"empty array", "Double [0, 2] []"}, Result{"bool array", "Bool [2] [1, 0]"},
        Result{"numpy float32", "0.5"}, Result{"numpy int8", "-3"}, Result{"numpy bool", "True"},
        Result{"numpy complex64", "0.0+1.0j"}, Result{"numpy longdouble", "1.5"},
        Result{"numpy key", "Dict[int, int] {4: 1}"},
        Result{"arrays in a dict", "Dict[str, List[Any]] {\"a\": List[Any] [Double [1] [1], 1]}"}),
    [](const auto& test) { return parameterName(test.param.kind); });

TEST(Permissive, ADictKeepsTheOrderThatItsClassGivesIt) {
  EXPECT_EQ(shown(made("moved dict")), "Dict[str, int] {\"b\": 2, \"a\": 1}");
}

TEST(Permissive, EmptyBytesBecomeAnEmptyTensor) {
  EXPECT_EQ(shown(made("empty bytes")), "Byte [0] []");
}

TEST(Permissive, ConversionIsTheObjsToo) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  const Obj mixed = session.self({"made", "mixed list"});
  EXPECT_EQ(shown(mixed.toIValuePermissive()), "List[Any] [1, 2.0, \"three\"]");
  EXPECT_TRUE(contains(refusalOf([&] { mixed.toIValue(); }), "Tracer cannot infer type of "))
      << "the strict conversion is unchanged";
  EXPECT_THROW(Obj().toIValuePermissive(), Error);
}

TEST(Permissive, WhatItGaveIsAnArgumentAgain) {
  const auto describe = [](const char* kind) {
    return valuesSubject().text("describe", {made(kind)});
  };
  EXPECT_EQ(describe("empty list"), "list []");
  EXPECT_EQ(describe("empty dict"), "dict {}");
  EXPECT_EQ(describe("mixed list"), "list [1, 2.0, 'three']");
  EXPECT_EQ(describe("mixed dict"),
            "dict {'tensor': tensor([1., 1.]), 'list': [tensor([0.])], 'n': 3}");
  EXPECT_EQ(describe("mixed keys"), "dict {'a': 1, 2: 3}");
  EXPECT_EQ(describe("dataclass"),
            "dict {'tensor': tensor([1.]), 'inner': {'numbers': [], 'label': None}}");
}

TEST(Permissive, AnArrayThatTheModelKeepsIsCopied) {
  const at::IValue first = valuesSubject().ask("kept_array", {}, permissive());
  const at::IValue second = valuesSubject().ask("kept_array", {}, permissive());
  EXPECT_EQ(first.toTensor()[0].item<int64_t>(), 1);
  EXPECT_EQ(second.toTensor()[0].item<int64_t>(), 2);
}

// ---- kinds that no conversion supports -------------------------------------------------------

struct Refusal {
  const char* kind;
  const char* said;
};

void PrintTo(const Refusal& refusal, std::ostream* stream) { *stream << refusal.kind; }

class PermissiveRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(PermissiveRefusal, SaysWhichElementAndWhy) {
  const std::string text = refusalOf([] { made(GetParam().kind); });
  EXPECT_TRUE(contains(text, GetParam().said)) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Permissive, PermissiveRefusal,
    ::testing::Values(
        Refusal{"object", "result can't become a value: it is of class "},
        Refusal{"class", "it is a class (Plain)"}, Refusal{"function", "it is a callable"},
        Refusal{"module", "it is a module of class torch.nn.modules.linear.Linear"},
        Refusal{"script module", "it is a module"},
        Refusal{"generator", "take its items one by one by stream(), or return list() of it"},
        Refusal{"NaN key", "a dict with a NaN key"}, Refusal{"crowded keys", "nearly equal hashes"},
        Refusal{"huge integer",
                "result[\"past\"][3] can't become a value: the integer does not fit into 64 bits"},
        Refusal{"surrogate", "result[0] can't become a value: the string has characters"},
        Refusal{"object deep inside", "result[\"a\"][1][1] can't become a value: it is of class "},
        Refusal{"object array", "a numpy array of dtype object can't become a tensor"},
        Refusal{"text array", "a numpy array of dtype <U4 can't become a tensor"},
        Refusal{"structured array", "can't become a tensor"},
        Refusal{"masked array", "call .filled() on it first"},
        Refusal{"date", "a numpy scalar of dtype datetime64"},
        Refusal{"tuple key", "key (1, 2) of result[\"t\"] can't become a value: a dict's keys"},
        Refusal{"bytes key", "key b'k' of result can't become a value"},
        Refusal{"None key", "key None of result can't become a value"},
        Refusal{"keys or None", "key None of result can't become a value"},
        Refusal{"keys that meet", "result can't become a value: two of its keys"},
        Refusal{"endless", "nested too deeply, or holds itself"},
        Refusal{"sour", "result[0] can't become a value: no items today"},
        Refusal{"coo in a list", ".to_dense()"}),
    [](const auto& test) { return parameterName(test.param.kind); });

// ---- Hugging Face ----------------------------------------------------------------------------

bool hasTransformers() {
  InterpreterSession session = sharedManager().acquireOne();
  return session.global("importlib.util", "find_spec")({"transformers"}).hasattr("name");
}

TEST(Permissive, AnOutputOfBertIsADictOfItsFields) {
  if (!hasTransformers()) GTEST_SKIP() << "the workers' Python has no transformers";
  const at::IValue output = valuesSubject().ask("hugging_face", {"bert"}, permissive());
  const auto fields = output.toGenericDict();
  EXPECT_FALSE(fields.contains("past_key_values")) << "a field that is None is left out";
  EXPECT_EQ(fields.at("last_hidden_state").toTensor().sizes(), at::IntArrayRef({1, 3, 8}));
  EXPECT_EQ(fields.at("hidden_states").toTupleRef().elements().size(), 3u);
  EXPECT_EQ(fields.at("attentions").toTupleRef().elements().at(0).toTensor().sizes(),
            at::IntArrayRef({1, 2, 3, 3}));
}

TEST(Permissive, TheCacheOfADecoderIsAListOfItsLayersKeysAndValues) {
  if (!hasTransformers()) GTEST_SKIP() << "the workers' Python has no transformers";
  const at::IValue output = valuesSubject().ask("hugging_face", {"gpt2"}, permissive());
  const auto fields = output.toGenericDict();
  EXPECT_EQ(fields.at("logits").toTensor().sizes(), at::IntArrayRef({1, 3, 11}));
  const auto layers = fields.at("past_key_values").toList();
  ASSERT_EQ(layers.size(), 2u);
  const auto& layer = layers.get(0).toTupleRef().elements();
  EXPECT_EQ(layer.at(0).toTensor().sizes(), at::IntArrayRef({1, 2, 3, 4}));
  EXPECT_EQ(layer.at(1).toTensor().sizes(), at::IntArrayRef({1, 2, 3, 4}));
}

}  // namespace
}  // namespace isopool::tests

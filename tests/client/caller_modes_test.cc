// SPDX-License-Identifier: BSD-3-Clause
// The calling thread's autocast and its treatment of denormal numbers reach the model. Grad and
// inference mode: see call_test.cc.
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <future>

#include "tests/client/values.h"

namespace isopool::tests {
namespace {

/// Enables autocast on the CPU for this thread, for the lifetime of this object.
class Autocast {
 public:
  explicit Autocast(at::ScalarType type, bool cache = true)
      : enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
        type_(at::autocast::get_autocast_dtype(at::kCPU)),
        cache_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::set_autocast_cache_enabled(cache);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, type_);
    at::autocast::set_autocast_cache_enabled(cache_);
  }

 private:
  bool enabled_;
  at::ScalarType type_;
  bool cache_;
};

constexpr const char* kOff = "(False, \"torch.bfloat16\", True, \"torch.float32\")";

std::string modesThere() { return shown(valuesSubject().ask("autocast")); }

TEST(CallerModes, AutocastReachesTheModelAndEndsWithTheCall) {
  EXPECT_EQ(modesThere(), kOff);
  {
    const Autocast autocast(at::kBFloat16);
    EXPECT_EQ(modesThere(), "(True, \"torch.bfloat16\", True, \"torch.bfloat16\")");
    {
      const Autocast inner(at::kHalf, /*cache=*/false);
      EXPECT_EQ(modesThere(), "(True, \"torch.float16\", False, \"torch.float16\")");
    }
    EXPECT_EQ(modesThere(), "(True, \"torch.bfloat16\", True, \"torch.bfloat16\")");
  }
  EXPECT_EQ(modesThere(), kOff);
}

TEST(CallerModes, AutocastIsThatOfTheCallingThread) {
  const Autocast autocast(at::kHalf);
  EXPECT_EQ(std::async(std::launch::async, modesThere).get(), kOff);
}

TEST(CallerModes, AutocastReachesStepsOfSessionsToo) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  EXPECT_EQ(shown(session.self({"autocast"}).toIValue()), kOff);
  {
    const Autocast autocast(at::kBFloat16);
    EXPECT_EQ(shown(session.self({"autocast"}).toIValue()),
              "(True, \"torch.bfloat16\", True, \"torch.bfloat16\")");
  }
  EXPECT_EQ(shown(session.self({"autocast"}).toIValue()), kOff);
}

TEST(CallerModes, TheTypeOfAutocastThatIsOffIsTheModelsDefault) {
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  EXPECT_EQ(modesThere(), "(False, \"torch.float16\", True, \"torch.float32\")");
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  EXPECT_EQ(modesThere(), kOff);
}

TEST(CallerModes, AnUnsupportedTypeTurnsAutocastOff) {
  const Autocast autocast(at::kDouble);
  EXPECT_EQ(modesThere(), kOff);
}

TEST(CallerModes, TheModelsOwnContextsNestInTheCallers) {
  const Autocast autocast(at::kBFloat16);
  EXPECT_EQ(shown(valuesSubject().ask("nested_autocast")),
            "(\"torch.float32\", \"torch.float16\", \"torch.bfloat16\")");
}

TEST(CallerModes, ModesThatAModelLeavesOnEndWithItsCall) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  session.self({"leave_autocast_on"});
  EXPECT_EQ(shown(session.self({"autocast"}).toIValue()), kOff);
}

TEST(CallerModes, AnInferenceModeThatAModelLeavesOnIsNotThatOfItsNextCall) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  session.self({"leave_inference_on"});
  EXPECT_EQ(shown(session.self({"inference"}).toIValue()), "False");
  const c10::InferenceMode inference;
  EXPECT_EQ(shown(session.self({"inference"}).toIValue()), "True");
}

TEST(CallerModes, ModesEndWithAFailedCall) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  {
    const Autocast autocast(at::kHalf);
    EXPECT_THROW(session.self({"no_such_method"}), RemoteError);
  }
  EXPECT_EQ(shown(session.self({"autocast"}).toIValue()), kOff);
}

TEST(CallerModes, WeightsThatAutocastHadCastAreCastAnewInTheNextCall) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  const Autocast autocast(at::kBFloat16);
  const at::Tensor x = at::ones({4, 4});
  const auto product = [&] {
    std::vector<at::IValue> arguments = {"weight_product", x};
    return session.self(at::ArrayRef<at::IValue>(arguments)).toIValue().toTensor();
  };
  EXPECT_EQ(product()[0][0].item<float>(), 4);
  session.self({"set_weight", 2});
  EXPECT_EQ(product()[0][0].item<float>(), 8);
}

/// Has denormal numbers flushed to zero in this thread, for the lifetime of this object.
class FlushedDenormals {
 public:
  FlushedDenormals() { at::globalContext().setFlushDenormal(true); }
  FlushedDenormals(const FlushedDenormals&) = delete;
  FlushedDenormals& operator=(const FlushedDenormals&) = delete;
  ~FlushedDenormals() { at::globalContext().setFlushDenormal(false); }
};

/// What a worker makes of a denormal number times one, and of a product that is denormal.
std::string denormalsThere() { return shown(valuesSubject().ask("denormals")); }

constexpr const char* kKept = "(True, True)";
constexpr const char* kFlushed = "(False, False)";

TEST(CallerModes, FlushedDenormalsReachTheModelAndEndWithTheCall) {
  EXPECT_EQ(denormalsThere(), kKept);
  {
    const FlushedDenormals flushed;
    EXPECT_EQ(denormalsThere(), kFlushed);
  }
  EXPECT_EQ(denormalsThere(), kKept);
}

TEST(CallerModes, FlushedDenormalsAreThoseOfTheThreadThatMadeTheAsynchronousCall) {
  const auto ask = [] { return valuesSubject().object().callAsync({"denormals"}, Named{}); };
  PendingCall flushedCall = [&] {
    const FlushedDenormals flushed;
    return ask();
  }();
  EXPECT_EQ(shown(flushedCall.get()), kFlushed);
  EXPECT_EQ(shown(ask().get()), kKept);
}

TEST(CallerModes, FlushedDenormalsReachCallsOnAllWorkers) {
  const auto outcomes = [] {
    std::string all;
    for (const at::IValue& each : valuesSubject().object().callOnAll({"denormals"})) {
      all += shown(each);
    }
    return all;
  };
  EXPECT_EQ(outcomes(), std::string(kKept) + kKept);
  const FlushedDenormals flushed;
  EXPECT_EQ(outcomes(), std::string(kFlushed) + kFlushed);
}

TEST(CallerModes, FlushedDenormalsReachStepsOfSessionsAndEndWithAFailedCall) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  {
    const FlushedDenormals flushed;
    EXPECT_EQ(shown(session.self({"denormals"}).toIValue()), kFlushed);
    EXPECT_THROW(session.self({"no_such_method"}), RemoteError);
  }
  EXPECT_EQ(shown(session.self({"denormals"}).toIValue()), kKept);
}

TEST(CallerModes, FlushedDenormalsThatAModelLeavesOnEndWithItsCall) {
  InterpreterSession session = valuesSubject().object().acquireSession();
  session.self({"leave_denormals_flushed"});
  EXPECT_EQ(shown(session.self({"denormals"}).toIValue()), kKept);
}

}  // namespace
}  // namespace isopool::tests

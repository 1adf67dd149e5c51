// SPDX-License-Identifier: BSD-3-Clause
// What global() and attr() reach in a worker, as programs of torch::deploy use them.
#include "tests/client/values.h"

namespace isopool::tests {
namespace {

using Arguments = at::ArrayRef<Obj>;

TEST(Global, OfMainHasTorchInEveryWorker) {
  for (const Interpreter& interpreter : sharedManager().allInstances()) {
    InterpreterSession session = interpreter.acquireSession();
    const Obj torch = session.global("__main__", "torch");
    EXPECT_EQ(torch.attr("__name__").toIValue().toStringRef(), "torch");
    EXPECT_EQ(shown(torch.attr("ones")({2}).toIValue()), "Float [2] [1, 1]");
    EXPECT_EQ(session.global("__main__", "__name__").toIValue().toStringRef(), "__main__");
  }
}

TEST(Global, OfMainCanHoldTheCallersNames) {
  InterpreterSession session = sharedManager().acquireOne();
  const Obj main = session.global("sys", "modules").attr("__getitem__")({"__main__"});
  main.attr("__setattr__")({"isopool_number", 42});
  EXPECT_EQ(session.global("__main__", "isopool_number").toIValue().toInt(), 42);
  main.attr("__delattr__")({"isopool_number"});
  EXPECT_THROW(session.global("__main__", "isopool_number"), RemoteError);
}

TEST(Global, GivesAModuleThatIsAnAttribute) {
  InterpreterSession session = sharedManager().acquireOne();
  EXPECT_EQ(session.global("os", "path").attr("join")({"a", "b"}).toIValue().toStringRef(), "a/b");
  EXPECT_TRUE(session.global("os", "path").hasattr("join"));
  EXPECT_FALSE(session.global("os", "path").hasattr("no_such_name"));
}

TEST(Global, ImportsADottedModuleAndTakesOneAttribute) {
  InterpreterSession session = sharedManager().acquireOne();
  EXPECT_EQ(session.global("xml.etree.ElementTree", "Element")({"a"})
                .attr("tag")
                .toIValue()
                .toStringRef(),
            "a");
  EXPECT_THROW(session.global("os", "path.join"), RemoteError)
      << "a name with a dot is not one attribute";
}

TEST(Global, ChainsOfAttributesReachFar) {
  InterpreterSession session = sharedManager().acquireOne();
  EXPECT_EQ(session.global("torch", "nn")
                .attr("functional")
                .attr("relu")
                .attr("__call__")({at::full({2}, -1)})
                .attr("abs")(Arguments())
                .attr("sum")(Arguments())
                .attr("item")(Arguments())
                .toIValue()
                .toInt(),
            0);
  const Obj pi = session.global("math", "pi");
  EXPECT_EQ(pi.attr("__class__").attr("__name__").toIValue().toStringRef(), "float");
}

}  // namespace
}  // namespace isopool::tests

// SPDX-License-Identifier: BSD-3-Clause
#include "base/repetition.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace isopool::base {
namespace {

struct Node {
  std::vector<const Node*> elements;
  size_t units = 1;
};

struct NodeParts {
  static const void* identity(const Node* node) { return node->elements.empty() ? nullptr : node; }
  static size_t units(const Node* node) { return node->units; }
  template <typename Visit>
  static void each(const Node* node, Visit&& visit) {
    for (const Node* element : node->elements) visit(element);
  }
};

Repetition repetitionOf(const Node& root) { return RepetitionCount<NodeParts>::of(&root); }

/// A chain: each node contains the next one `times` times, the last one a leaf.
std::vector<Node> chain(size_t length, size_t times, const Node& leaf) {
  std::vector<Node> nodes(length);
  for (size_t i = 0; i < length; ++i) {
    nodes[i].elements.assign(times, i + 1 < length ? &nodes[i + 1] : &leaf);
  }
  return nodes;
}

TEST(RepetitionCount, OfATreeIsZero) {
  const Node leaf;
  const auto nodes = chain(60, 1, leaf);
  EXPECT_EQ(repetitionOf(nodes[0]).repeated, 0u);
  EXPECT_EQ(repetitionOf(nodes[0]).refusal(), "");
}

TEST(RepetitionCount, OfAFlatContainerIsZeroHoweverLongItIs) {
  const Node leaf;
  Node list;
  list.elements.assign(2 * Repetition::kMost, &leaf);
  EXPECT_EQ(repetitionOf(list).repeated, 0u);
}

TEST(RepetitionCount, OfOnePartThatOccursOftenIsItsSizeEachTime) {
  const Node leaf;
  Node row;
  row.elements.assign(9, &leaf);
  Node list;
  list.elements.assign(1000, &row);
  EXPECT_EQ(repetitionOf(list).repeated, 999u * 9);
}

TEST(RepetitionCount, OfPairsInPairsIsFoundInLinearTime) {
  const Node leaf;
  for (const size_t length : {26u, 30u, 60u}) {
    const auto nodes = chain(length, 2, leaf);
    EXPECT_NE(repetitionOf(nodes[0]).refusal(), "") << length;
  }
  EXPECT_EQ(repetitionOf(chain(20, 2, leaf)[0]).refusal(), "");
}

TEST(RepetitionCount, FindsAStructureThatContainsItself) {
  std::vector<Node> nodes(3);
  nodes[0].elements = {&nodes[1], &nodes[1]};
  nodes[1].elements = {&nodes[2], &nodes[2]};
  nodes[2].elements = {&nodes[0]};
  EXPECT_NE(repetitionOf(nodes[0]).refusal().find("contains itself"), std::string::npos);
}

// Against the number of values that writing one after the other gives.
TEST(RepetitionCount, OfARandomStructureIsWhatIsWrittenBeyondItsParts) {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t limit) {
      return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
    };
    std::vector<Node> nodes(2 + below(30));
    std::vector<double> written(nodes.size(), 0);
    std::vector<bool> reached(nodes.size(), false);
    for (size_t i = nodes.size(); i-- > 0;) {
      nodes[i].units = 1 + below(3);
      const size_t later = nodes.size() - i - 1;
      for (size_t left = later == 0 ? 0 : below(4); left > 0; --left) {
        nodes[i].elements.push_back(&nodes[i + 1 + below(later)]);
      }
      written[i] = static_cast<double>(nodes[i].units);
      for (const Node* each : nodes[i].elements) written[i] += written[each - nodes.data()];
    }
    // Each container once; a further reference to one as one value; a leaf each time.
    std::vector<const Node*> open{&nodes[0]};
    double single = static_cast<double>(nodes[0].units);
    reached[0] = true;
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const Node* each : node->elements) {
        const size_t index = each - nodes.data();
        if (each->elements.empty()) {
          single += static_cast<double>(each->units);
        } else if (reached[index]) {
          single += 1;
        } else {
          reached[index] = true;
          single += static_cast<double>(each->units);
          open.push_back(each);
        }
      }
    }
    const Repetition found = repetitionOf(nodes[0]);
    EXPECT_FALSE(found.containsItself);
    EXPECT_EQ(static_cast<double>(found.repeated), written[0] - single) << "seed " << seed;
  }
}

}  // namespace
}  // namespace isopool::base

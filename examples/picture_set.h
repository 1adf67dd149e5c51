// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

namespace examples {

/// What the classifier says of a picture.
struct Guess {
  std::string label;
  double confidence = 0;  // 0 to 1
};

struct Picture {
  std::string name;   // "cat.ppm"
  at::Tensor pixels;  // uint8, height x width x 3, in memory shared with the workers
  Guess expected;     // what eager PyTorch said of it

  /// The expected label, with the confidence that the same arithmetic gives anywhere.
  bool isRight(const Guess& guess) const;
};

/// The pictures and labels that package_classifier.py wrote. Constant once read: any thread.
class PictureSet {
 public:
  /// Throws std::runtime_error that names the file if one is missing or not as expected.
  static PictureSet read(const std::filesystem::path& folder);

  const std::vector<Picture>& pictures() const { return pictures_; }
  size_t payloadBytes() const;

  /// The likeliest label, given one probability per label.
  Guess guess(const at::Tensor& probabilities) const;

 private:
  std::vector<Picture> pictures_;
  std::vector<std::string> labels_;
};

}  // namespace examples

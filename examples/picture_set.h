// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

namespace examples {

/// The answer of the classifier for one picture.
struct Guess {
  std::string label;
  double confidence = 0;  // 0 to 1
};

/// A picture and the answer that is expected for it.
struct Picture {
  std::string name;   // "cat.ppm"
  at::Tensor pixels;  // uint8, height x width x 3, in memory shared with the workers
  Guess expected;     // the answer of eager PyTorch

  /// True for the expected label with the expected confidence, within 0.01.
  bool isRight(const Guess& guess) const;
};

/// The pictures and labels that package_classifier.py wrote. Thread-safe: constant after read().
class PictureSet {
 public:
  /// Reads all files of the folder. Throws std::runtime_error, which names the file, if one is
  /// missing or has another format.
  static PictureSet read(const std::filesystem::path& folder);

  const std::vector<Picture>& pictures() const { return pictures_; }
  /// The number of bytes of all pixels.
  size_t payloadBytes() const;

  /// The label with the highest probability. `probabilities` has one float for each label.
  Guess guess(const at::Tensor& probabilities) const;

 private:
  std::vector<Picture> pictures_;
  std::vector<std::string> labels_;
};

}  // namespace examples

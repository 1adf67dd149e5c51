// SPDX-License-Identifier: BSD-3-Clause
#include "examples/picture_set.h"

#include <ATen/ATen.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "isopool/isopool.h"

namespace examples {
namespace {

namespace fs = std::filesystem;

std::ifstream open(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    throw std::runtime_error(file.string() +
                             " can't be read: make it with package_classifier.py --out");
  }
  return stream;
}

std::vector<std::string> readLines(const fs::path& file) {
  std::ifstream stream = open(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Reads a binary PPM of package_classifier.py: "P6 width height 255", one byte of white space,
/// then the pixels. Reads the pixels from the file directly into shared memory.
at::Tensor readPixels(const fs::path& file) {
  std::ifstream stream = open(file);
  std::string magic;
  int64_t width = 0, height = 0, brightest = 0;
  stream >> magic >> width >> height >> brightest;
  stream.get();
  if (!stream || magic != "P6" || width <= 0 || height <= 0 || brightest != 255) {
    throw std::runtime_error(file.string() + " is not a binary PPM picture of 8-bit pixels");
  }
  at::Tensor pixels = isopool::empty({height, width, 3}, at::kByte);
  stream.read(static_cast<char*>(pixels.data_ptr()), pixels.numel());
  if (!stream) throw std::runtime_error(file.string() + " is truncated");
  return pixels;
}

/// One line of expected.txt: picture, label and confidence, separated by tabs.
Picture readPicture(const fs::path& folder, const std::string& line) {
  Picture picture;
  std::istringstream fields(line);
  std::getline(fields, picture.name, '\t');
  std::getline(fields, picture.expected.label, '\t');
  fields >> picture.expected.confidence;
  if (!fields) throw std::runtime_error((folder / "expected.txt").string() + ": bad line: " + line);
  picture.pixels = readPixels(folder / picture.name);
  return picture;
}

}  // namespace

bool Picture::isRight(const Guess& guess) const {
  return guess.label == expected.label && std::abs(guess.confidence - expected.confidence) < 0.01;
}

PictureSet PictureSet::read(const fs::path& folder) {
  PictureSet set;
  set.labels_ = readLines(folder / "labels.txt");
  for (const std::string& line : readLines(folder / "expected.txt")) {
    set.pictures_.push_back(readPicture(folder, line));
  }
  if (set.pictures_.empty()) throw std::runtime_error("no pictures in " + folder.string());
  return set;
}

size_t PictureSet::payloadBytes() const {
  size_t bytes = 0;
  for (const Picture& picture : pictures_) bytes += picture.pixels.nbytes();
  return bytes;
}

Guess PictureSet::guess(const at::Tensor& probabilities) const {
  const auto [confidence, label] = probabilities.max(/*dim=*/0);
  return {labels_.at(label.item<int64_t>()), confidence.item<double>()};
}

}  // namespace examples

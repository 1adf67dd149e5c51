// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "client/models/model_format.h"

namespace isopool::client {

extern const ModelFormat kOnnx;             ///< a protobuf of ONNX
extern const ModelFormat kTorchPackage;     ///< torch.package
extern const ModelFormat kTorchScript;      ///< torch.jit.save
extern const ModelFormat kAotInductor;      ///< a .pt2 of AOTInductor
extern const ModelFormat kExportedProgram;  ///< a .pt2 of torch.export.save

/// All formats, in the order in which a file is compared with them.
std::span<const ModelFormat* const> modelFormats();

/// The format of a file; null if it is an archive of PyTorch's in none of them. Throws c10::Error
/// with the file's name if the file is damaged, and if it is neither an archive nor ONNX.
const ModelFormat* formatOf(ModelFile& file);

/// For the `prepare` of a format whose files hold one model without a name: throws c10::Error, with
/// the format's description, if `model` is not empty.
void checkOnlyModel(const ModelFormat& format, const std::string& model);

/// "a TorchScript file", for messages. Also of an archive in another format, as far as it is known.
/// Throws as formatOf().
std::string describe(ModelFile& file);

}  // namespace isopool::client

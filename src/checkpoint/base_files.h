// SPDX-License-Identifier: Apache-2.0
// A base that stays in its folder: what programs have on the disk, read from the folder's own files in the
// bytes that products take.
#pragma once

#include <filesystem>
#include <memory>

#include "backend/disk_source.h"
#include "io/safetensors.h"
#include "lowering/build.h"
#include "plan/plan.h"

namespace sluice::core {

// Whether that is so of these: ModelSpec::files_have.
bool files_have(const ModelSpec& spec, const TensorFiles& files);

// The objects that a plan has on the disk, at their places there. `program` and `plan` are the model's.
// Errors name what cannot be opened, or is not there as the plan has it.
Result<std::shared_ptr<const DiskSource>> open_base(const BuiltProgram& model, const Plan& plan,
                                                    const std::filesystem::path& folder);

// Bytes per second at which files of the folder are read, as a lane from the disk does. It reads the largest
// one, no more than `most_bytes` of it, and no longer than about `most_seconds`.
Result<double> measure_reads(const std::filesystem::path& folder, int64_t most_bytes, double most_seconds);

}  // namespace sluice::core

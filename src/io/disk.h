// SPDX-License-Identifier: Apache-2.0
// The disk that a directory is on: what is free there and how fast it takes bytes.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/status.h"

namespace sluice::core {

// Bytes that this user can still write at `path` or, if nothing is there yet, at the nearest directory above.
Result<int64_t> free_disk_bytes(const std::filesystem::path& path);

// Bytes per second until they are on the device: of a file in `directory` that has no name, so that nothing
// is left of it. It writes until `most_bytes` are written or `most_seconds` are over, in pieces of 16 MiB.
Result<double> measure_disk(const std::filesystem::path& directory, int64_t most_bytes, double most_seconds);

}  // namespace sluice::core

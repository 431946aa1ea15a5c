// SPDX-License-Identifier: Apache-2.0
// Numbers over steps for TensorBoard, in a file as it reads them.
//
// The file is a sequence of records: uint64 length, masked CRC-32C of that, the bytes, masked CRC-32C of
// them; the mask is (crc >> 15 | crc << 17) + 0xa282ead8. The bytes are a protobuf message `Event`: wall_time
// (field 1, double), step (2, int64), file_version (3, "brain.Event:2", in the first one), session_log (7)
// with its status (1, 1: START) or summary (5), which holds values (1) with a tag (1) and a simple_value (2,
// float), or of texts metadata (9), whose plugin_data (1) has the plugin_name (1) "text", and a tensor (8)
// with dtype (1, 7: strings), tensor_shape (2) of one dim (2) with its size (1), and string_val (8). A
// protobuf library would bring a compiler of schemas for these few fields.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "io/appended_file.h"

namespace sluice::core {

// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

// One thread at a time.
class EventFile {
 public:
  // A new file in a directory; `time_s` since the epoch names it. TensorBoard takes all of a directory
  // together. What other files of ours have from the first record of `first_step` or a later step on is cut
  // off, as it is made again. This file says so, for readers that have them open.
  static Result<EventFile> create(const std::filesystem::path& directory, double time_s, int64_t first_step);

  // Tags and values of one step; values that are not finite are left out. Written as io/appended_file.h says.
  Status add(double time_s, int64_t step, std::span<const std::pair<std::string_view, double>> values);
  // Texts of one step, as TensorBoard shows them under a tag.
  Status add(double time_s, int64_t step, std::string_view tag, std::span<const std::string> texts);

 private:
  explicit EventFile(AppendedFile file) : file_(std::move(file)) {}
  Status write(std::string_view event);

  AppendedFile file_;
};

}  // namespace sluice::core

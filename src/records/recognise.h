// SPDX-License-Identifier: Apache-2.0
// What a file is by its first bytes.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// Bytes of the byte order mark that a text in UTF-8 begins with, which is no part of it; 0: it has none.
constexpr size_t mark_bytes(std::string_view first_bytes) {
  return first_bytes.starts_with("\xef\xbb\xbf") ? 3 : 0;
}

enum class Container : uint8_t { Text, Lines, List, Values, Table };

// The compression of a file with these first bytes, "gzip" or "zstd"; empty: none.
std::string_view compression_of(std::string_view first_bytes);
// An error where the file's name says otherwise, with the name that says so.
Status check_compression(const std::filesystem::path& path, std::string_view compression);

// The name of a file without .gz or .zst.
std::filesystem::path name_before_compression(const std::filesystem::path& path);

// Whether the first line of a file, or what is there of it, is a record of JSON.
bool begins_with_record(std::string_view text);

// The container of a file with records (has_records()), without its byte order mark.
Container container_of(const std::filesystem::path& path, std::string_view first_bytes);

// An error for formats that hold data and are none of text, with the command that converts it.
Status check_format(const std::filesystem::path& path, std::string_view first_bytes);

// The separator of a table's fields: a tab, or of a comma and a semicolon what its header has.
char separator_of(const std::filesystem::path& path, std::string_view header);

}  // namespace sluice::core

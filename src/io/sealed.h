// SPDX-License-Identifier: Apache-2.0
// Files of a cache, which say what they are, what they were made for, and whether they are whole. Nobody
// knows who wrote to a cache since. The very bytes that were kept for the very same request come back, or an
// error that says what is wrong. Then one makes them anew.
//
//   sluice <kind>\n
//   <checksum of all that follows, 32 hexadecimal digits>\n
//   <bytes of the request>\n
//   <request><content>
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// The full request that a file was made for: a "name = value" a line. A key of it names the file.
class SealedRequest {
 public:
  // `kind`: what the content is, and its format; no line breaks.
  explicit SealedRequest(std::string kind) : kind_(std::move(kind)) {}

  // Numbers as they are to the last bit. Values may have line breaks: they are told from another name's.
  SealedRequest& add(std::string_view name, std::string_view value);
  SealedRequest& add(std::string_view name, double value);
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T> SealedRequest& add(std::string_view name, T value) {
    return add(name, std::string_view(fmt::format("{}", static_cast<int64_t>(value))));
  }

  const std::string& kind() const { return kind_; }
  const std::string& text() const { return text_; }
  // 32 hexadecimal digits.
  std::string key() const;

 private:
  std::string kind_, text_;
};

// As write_file().
Status write_sealed(const std::filesystem::path& path, const SealedRequest& request,
                    std::string_view content);

// The content that was kept for this request. NotFound: there is no such file. Any other error says in one
// sentence why the file is not believed. It is damaged, or of another kind, or made for something else, of
// which it names the first difference.
Result<std::string> read_sealed(const std::filesystem::path& path, const SealedRequest& request,
                                int64_t most_bytes = int64_t{1} << 30);

// Reads the text of the request that a file of a kind was made for. Errors as those of read_sealed().
Result<std::string> read_sealed_request(const std::filesystem::path& path, std::string_view kind,
                                        int64_t most_bytes = int64_t{1} << 30);

// The same for bytes that are there already; `name` stands for the file.
std::string sealed_bytes(const SealedRequest& request, std::string_view content);
Result<std::string_view> unsealed(std::string_view bytes, const SealedRequest& request,
                                  std::string_view name);

}  // namespace sluice::core

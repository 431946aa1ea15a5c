// SPDX-License-Identifier: Apache-2.0
#include "io/sealed.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/checksum.h"
#include "base/printable.h"
#include "io/file.h"

namespace sluice::core {
namespace {

std::string_view take_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + 1));
  return line;
}

// The first lines in which two requests differ.
std::pair<std::string_view, std::string_view> difference(std::string_view a, std::string_view b) {
  for (;;) {
    const std::string_view line_a = take_line(a), line_b = take_line(b);
    if (line_a != line_b || (a.empty() && b.empty())) return {line_a, line_b};
  }
}

std::string shortened(std::string_view line) {
  constexpr size_t kMost = 80;
  const std::string out = printable(line.substr(0, kMost));
  return out.empty() ? "nothing" : "'" + out + (line.size() > kMost ? "...'" : "'");
}

}  // namespace

SealedRequest& SealedRequest::add(std::string_view name, std::string_view value) {
  text_ += fmt::format("{} = ", name);
  for (const char c : value) {
    if (c == '\\' || c == '\n') text_ += '\\';
    text_ += c == '\n' ? 'n' : c;
  }
  text_ += '\n';
  return *this;
}

SealedRequest& SealedRequest::add(std::string_view name, double value) {
  return add(name, std::string_view(fmt::format("{} ({:016x})", value, std::bit_cast<uint64_t>(value))));
}

std::string SealedRequest::key() const {
  return Checksummer().add(kind_).add(std::string_view("\n")).add(text_).value().to_text();
}

std::string sealed_bytes(const SealedRequest& request, std::string_view content) {
  const std::string size = fmt::format("{}\n", request.text().size());
  const Checksum sum = Checksummer().add(std::string_view(size)).add(request.text()).add(content).value();
  std::string out = fmt::format("sluice {}\n{}\n", request.kind(), sum.to_text());
  out.reserve(out.size() + size.size() + request.text().size() + content.size());
  return out.append(size).append(request.text()).append(content);
}

namespace {

struct SealedFile {
  std::string_view request, content;
};

Result<SealedFile> open_sealed(std::string_view bytes, const std::string& kind, std::string_view name) {
  std::string_view rest = bytes;
  if (const std::string_view found = take_line(rest); found != "sluice " + kind) {
    return error("{} begins with {}; 'sluice {}' was expected", name, shortened(found), kind);
  }
  if (const auto sum = Checksum::parse(take_line(rest)); !sum || *sum != checksum_of(rest)) {
    return error("{} is damaged: its bytes do not match their checksum", name);
  }
  const std::string_view digits = take_line(rest);
  size_t size = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (code != std::errc() || end != digits.data() + digits.size() || size > rest.size()) {
    return error("{} is damaged: a request of {} bytes in {}", name, shortened(digits), rest.size());
  }
  return SealedFile{rest.substr(0, size), rest.substr(size)};
}

}  // namespace

Result<std::string_view> unsealed(std::string_view bytes, const SealedRequest& request,
                                  std::string_view name) {
  SLUICE_ASSIGN(const SealedFile file, open_sealed(bytes, request.kind(), name));
  if (file.request != request.text()) {
    const auto [theirs, ours] = difference(file.request, request.text());
    return error("{} was made for {}, not for {}", name, shortened(theirs), shortened(ours));
  }
  return file.content;
}

Status write_sealed(const std::filesystem::path& path, const SealedRequest& request,
                    std::string_view content) {
  return write_file(path, sealed_bytes(request, content));
}

Result<std::string> read_sealed(const std::filesystem::path& path, const SealedRequest& request,
                                int64_t most_bytes) {
  SLUICE_ASSIGN(std::string bytes, read_file(path, most_bytes));
  SLUICE_ASSIGN(const std::string_view content, unsealed(bytes, request, path.string()));
  bytes.erase(0, bytes.size() - content.size());
  return bytes;
}

Result<std::string> read_sealed_request(const std::filesystem::path& path, std::string_view kind,
                                        int64_t most_bytes) {
  SLUICE_ASSIGN(const std::string bytes, read_file(path, most_bytes));
  SLUICE_ASSIGN(const SealedFile file, open_sealed(bytes, std::string(kind), path.string()));
  return std::string(file.request);
}

}  // namespace sluice::core

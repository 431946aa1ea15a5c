// SPDX-License-Identifier: Apache-2.0
#include "io/jsonl.h"

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::core {

Result<JsonLines> JsonLines::open(const std::filesystem::path& path) {
  SLUICE_ASSIGN(Descriptor fd, Descriptor::open_own(path, O_APPEND));
  const off_t size = ::lseek(fd.get(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(fd.get(), &last, 1, size - 1) != 1) return file_error("read", path);
  constexpr std::byte kEnd{'\n'};
  if (last != '\n') SLUICE_TRY(fd.write({&kEnd, 1}, std::nullopt, path));
  return JsonLines(AppendedFile(path, std::move(fd)));
}

Status JsonLines::append(const nlohmann::ordered_json& object) {
  std::string line = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  line += '\n';
  return file_.append(line);
}

}  // namespace sluice::core

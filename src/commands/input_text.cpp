// SPDX-License-Identifier: Apache-2.0
#include "commands/input_text.h"

#include <iostream>
#include <iterator>

#include "io/file.h"

namespace sluice::core {

Result<std::string> read_input(const std::string& path) {
  if (path != "-") return read_file(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

Status check_vocab(std::span<const int32_t> ids, int64_t vocab) {
  for (const int32_t id : ids) {
    if (id >= vocab)
      return error("the tokenizer makes token {} of it, but the model has tokens 0 to {} only", id,
                   vocab - 1);
  }
  return {};
}

}  // namespace sluice::core

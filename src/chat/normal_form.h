// SPDX-License-Identifier: Apache-2.0
// The text of a chat template without what does not matter: comments, white space inside tags, kinds of
// quotes, how constants are put together. Templates of equal normal form render the same.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::core {

// With trim_blocks and lstrip_blocks, as transformers sets them. Errors: a tag or a string that has no end.
Result<std::string> normal_form_of_template(std::string_view text);

}  // namespace sluice::core

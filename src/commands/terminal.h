// SPDX-License-Identifier: Apache-2.0
// What the terminal that a command prints on can do.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string_view>

#include "commands/say.h"
#include "pages/fit.h"

namespace sluice::core {

// Whether a stream is a terminal on which a line can be written anew in place: not one that says TERM=dumb.
bool rewrites(FILE* out);
// Whether a stream takes colours: such a terminal, unless NO_COLOR is set to anything.
bool takes_colours(FILE* out);
// How wide lines may be: what COLUMNS says; else the width of the terminal; 0: any, as in a file.
size_t columns_of(FILE* out);

// Prints text for people on standard output, no wider than that.
inline void show_text(std::string_view text) {
  say("{}", fit(text, columns_of(stdout)));
}

}  // namespace sluice::core

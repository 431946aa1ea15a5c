// SPDX-License-Identifier: Apache-2.0
#include "commands/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "commands/commands.h"

namespace sluice::core {
namespace {

constexpr size_t kLeastColumns = 40;  // what is narrower cannot hold a table

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

// Open MPI's launcher gives each process a terminal of its own and copies what comes there to wherever it
// prints itself, a file perhaps.
bool rewrites(FILE* out) {
  return isatty(fileno(out)) != 0 && variable("TERM") != "dumb" && variable("OMPI_COMM_WORLD_SIZE").empty();
}

bool takes_colours(FILE* out) {
  return rewrites(out) && variable("NO_COLOR").empty();
}

size_t columns_of(FILE* out) {
  const std::string_view said = variable("COLUMNS");
  size_t columns = 0;
  const auto [end, failed] = std::from_chars(said.data(), said.data() + said.size(), columns);
  if (failed != std::errc() || end != said.data() + said.size()) columns = 0;
  winsize size{};
  if (columns == 0 && isatty(fileno(out)) != 0 && ioctl(fileno(out), TIOCGWINSZ, &size) == 0)
    columns = size.ws_col;
  return columns == 0 ? 0 : std::max(columns, kLeastColumns);
}

size_t text_columns() {
  return columns_of(stdout);
}

}  // namespace sluice::core

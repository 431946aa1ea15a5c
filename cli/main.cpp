// SPDX-License-Identifier: Apache-2.0
// The command line: parse, call, print.
#include <cstdio>

#include "command_line.h"
#include "help.h"

int main(int argc, char** argv) {
  constexpr int kMisused = 2;
  int status = 0;
  const auto app = make_command_line(status);
  if (argc < 2) {
    std::fputs(list_of_commands(*app).c_str(), stderr);
    return kMisused;
  }
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto parsed = app->get_subcommands();
    const std::string text =
        parsed.empty() ? list_of_commands(*app) : help_of(*app, parsed.front()->get_name());
    std::fputs(text.c_str(), stdout);
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "%s\n", explain(*app, e).c_str());
    return kMisused;
  }
  return status;
}

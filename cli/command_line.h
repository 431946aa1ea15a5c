// SPDX-License-Identifier: Apache-2.0
// The commands and their options, as CLI11 parses them, and what each says of itself.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

// Everything that help, manual and completions say of a command.
struct OptionHelp {
  std::string name;   // "--device-mem", or "CONFIG" for an argument that stands by itself
  std::string brief;  // "-h"; empty: there is none
  std::string value;  // what it takes: "SIZE"; empty: nothing. Decides what completion offers
  std::string group, meaning;
  bool is_argument = false, required = false;
};
struct CommandHelp {
  std::string name, meaning;
  std::vector<OptionHelp> options;    // arguments first, --help last
  std::vector<std::string> examples;  // lines: a command, or indented what it does
};

// Commands run when the parser that is returned has parsed one; the program's exit status is then `status`,
// which outlives the parser.
std::unique_ptr<CLI::App> make_command_line(int& status);

// The commands of a parser that are meant for people, in the order in which they are listed.
std::vector<CommandHelp> commands_of(const CLI::App& app);
// The options that stand before a command.
std::vector<OptionHelp> options_of(const CLI::App& app);

// SPDX-License-Identifier: Apache-2.0
// What the program says of its commands, and of command lines that it does not understand.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

// The commands with a line each.
std::string list_of_commands(const CLI::App& app);

// How to call one of them: its options and examples. REQUIRES: it is the name of one.
std::string help_of(const CLI::App& app, const std::string& command);

// Which word of the command line could not be taken, what was probably meant, and where more is said: two
// lines that begin with the program's name. `app` has tried to parse it and thrown `e`.
std::string describe(const CLI::App& app, const CLI::ParseError& e);
// The same for a name that no command has.
std::string unknown_command(const CLI::App& app, const std::string& name);

// SPDX-License-Identifier: Apache-2.0
// What shells offer while a command is typed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

// A script for `shell`: "bash", "zsh" or "fish". It offers commands, options, the names that options take,
// and configuration keys after --set.
std::string completions(const CLI::App& app, const std::string& shell);

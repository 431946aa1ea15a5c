// SPDX-License-Identifier: Apache-2.0
// The manual page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

// sluice(1) in the language of man(7): every command, option and configuration key.
std::string manual(const CLI::App& app);

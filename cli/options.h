// SPDX-License-Identifier: Apache-2.0
// What the options of several commands share, and the commands of each source: each function adds some to a
// parser, with options that live as long as their callback. `status` becomes the program's when one has run.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "commands/commands.h"

void add_run_commands(CLI::App& app, int& status);      // train, plan, simulate, demo, sweep, compare, serve
void add_model_commands(CLI::App& app, int& status);    // estimate, data, tokens, generate, export
void add_machine_commands(CLI::App& app, int& status);  // machines, doctor, bench, keys

// Exit statuses, beside 0; docs/exit-codes.md. What is wrong with the command line itself is misuse. That of
// an interrupted run is what sysexits.h calls a temporary failure: the same command goes on.
constexpr int kFailed = 1, kMisused = 2, kNothingLeft = 3, kUnsaved = 4, kInterrupted = 75, kStopped = 130;

// Prints what an outcome says; its exit status.
int report(const sluice::core::Outcome& outcome);

// With commas between.
std::string joined(const std::vector<std::string>& words);

std::string machine_help();
std::string model_help();

// A command and the lines of its examples.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& meaning,
                      const std::string& examples);

// Adds options to a command: each with where its value goes, its meaning, the type of its value and the group
// that help lists it in. Borrows the command.
struct OptionsOf {
  CLI::App& command;

  CLI::Option* operator()(const char* name, auto& value, const std::string& meaning, const char* type,
                          const char* group) const {
    return command.add_option(name, value, meaning)->type_name(type)->group(group);
  }
};

// Options that are keys of the configuration under names of their own; their help ends with the key. What
// was given becomes "key=value" among the settings, in the order in which the options were added.
void add_setting(CLI::App& command, std::vector<std::string>& settings, const char* name,
                 const std::string& key, const std::string& meaning, const char* type, const char* group);
// --device-mem and --host-mem, with an example of each.
void add_caps(CLI::App& command, std::vector<std::string>& settings, const std::string& device,
              const std::string& host);
// --backend and --device.
void add_backend(CLI::App& command, std::vector<std::string>& settings);
// --set, for all keys. What an option of its own says, which is a setting by then or one of `own` (option and
// key), is refused here.
void add_set(CLI::App& command, std::vector<std::string>& settings,
             const std::vector<std::pair<std::string, std::string>>& own = {});

// Refuses options beside which another one changes nothing, or that change nothing beside it.
void excludes_all(CLI::Option* option, CLI::App& command, const std::vector<std::string>& others);

// Refuses what is no number before CLI11 does, which does not say what it wants.
template <class Number>
CLI::Validator number(const std::string& wanted) {
  return CLI::Validator(
      [=](const std::string& text) {
        Number value{};
        const char* const end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data(), end, value);
        return error == std::errc() && read == end ? "" : "'" + text + "' is not " + wanted;
      },
      "");
}
constexpr const char* kWhole = "a whole number";

// Numbers of tokens take suffixes.
CLI::Validator tokens();

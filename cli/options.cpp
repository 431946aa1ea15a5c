// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cstdio>

#include "commands/say.h"
#include "interrupt.h"

int report(const sluice::core::Outcome& outcome) {
  if (!outcome.message.empty()) sluice::core::say(stderr, "sluice: {}\n", outcome.message);
  switch (outcome.ending) {
    case sluice::core::Ending::Done:
      return 0;
    case sluice::core::Ending::NothingLeft:
      return kNothingLeft;
    case sluice::core::Ending::Interrupted:
      return kInterrupted;
    case sluice::core::Ending::Stopped:
      std::fflush(nullptr);
      end_by_signal();
      return kStopped;
    case sluice::core::Ending::Unsaved:
      return kUnsaved;
    case sluice::core::Ending::Failed:
      break;
  }
  return kFailed;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string machine_help() {
  return "plan for a machine that is not here: a name that sluice machines lists, or a machine file (.toml)";
}

std::string model_help() {
  return joined(sluice::core::names().models) + ", or the path of a config.json";
}

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& meaning,
                      const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, meaning);
  command->footer(examples);
  command->set_help_flag("-h,--help", "print this and end")->group("Options");
  return *command;
}

void add_setting(CLI::App& command, std::vector<std::string>& settings, const char* name,
                 const std::string& key, const std::string& meaning, const char* type, const char* group) {
  const auto add = [&settings, key](const std::string& value) { settings.push_back(key + "=" + value); };
  command.add_option_function<std::string>(name, add, meaning + " (" + key + ")")
      ->type_name(type)
      ->group(group);
}

void add_caps(CLI::App& command, std::vector<std::string>& settings, const std::string& device,
              const std::string& host) {
  add_setting(command, settings, "--device-mem", "memory.device",
              "cap on device memory, such as " + device + " or none", "SIZE", "Caps");
  add_setting(command, settings, "--host-mem", "memory.host",
              "cap on host memory, such as " + host + " or none", "SIZE", "Caps");
}

void add_backend(CLI::App& command, std::vector<std::string>& settings) {
  add_setting(command, settings, "--backend", "run.backend", "auto, or one that this program has", "BACKEND",
              "Configuration");
  add_setting(command, settings, "--device", "run.device", "index of the GPU", "N", "Configuration");
}

void add_set(CLI::App& command, std::vector<std::string>& settings,
             const std::vector<std::pair<std::string, std::string>>& own) {
  const auto add = [&settings, &command, own](const std::vector<std::string>& more) {
    for (const std::string& text : more) {
      const std::string key = text.substr(0, text.find('='));
      const auto refuse = [&](const std::string& said) {
        throw CLI::ValidationError("--set " + text, said + " says it, too; give one of them");
      };
      for (const std::string& earlier : settings) {
        if (earlier != text && earlier.starts_with(key + "=")) refuse("an option (" + earlier + ")");
      }
      for (const auto& [option, of] : own) {
        if (of == key && command.count(option) > 0) refuse(option);
      }
    }
    settings.insert(settings.end(), more.begin(), more.end());
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--set", add, "override a key of the configuration; may be repeated; sluice keys lists all")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE")
      ->group("Configuration");
}

void excludes_all(CLI::Option* option, CLI::App& command, const std::vector<std::string>& others) {
  for (const std::string& other : others) option->excludes(command.get_option(other));
}

CLI::Validator tokens() {
  return CLI::Validator(
      [](std::string& text) {
        const std::string digits = sluice::core::tokens_in_digits(text);
        if (digits.empty())
          return "'" + text + "' is not a whole number, such as 8192 or 8k, which is 8 x 1024";
        text = digits;
        return std::string();
      },
      "");
}

// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "commands/say.h"
#include "completions.h"
#include "help.h"
#include "manual.h"
#include "options.h"

namespace {

using sluice::core::say;

void add_help(CLI::App& app, int& status) {
  const auto name = std::make_shared<std::string>();
  CLI::App& help = add_command(app, "help", "say more of a command", "sluice help plan");
  help.add_option("COMMAND", *name, "which")->type_name("COMMAND")->group("Arguments");
  help.callback([=, &app, &status] {
    const std::string text = name->empty() ? list_of_commands(app) : help_of(app, *name);
    say("{}", text);
    if (!text.empty()) return;
    say(stderr, "{}\n", unknown_command(app, *name));
    status = kMisused;
  });
}

// For the build: files that say what the options above say. It is no command for people.
void add_installed(CLI::App& app) {
  const auto what = std::make_shared<std::string>();
  CLI::App* installed = app.add_subcommand("installed", "print a file to install");
  installed->group("");
  installed->add_option("WHAT", *what, "man, bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish"}));
  installed->callback([=, &app] {
    const std::string text = *what == "man" ? manual(app) : completions(app, *what);
    say("{}", text);
  });
}

// A variable of a shell that is not set would else be the same as no option at all.
void refuse_empty_values(CLI::App& app) {
  const auto check = [](std::string& value) {
    return std::string(value.empty() ? "it is empty; give it a value, or leave it out" : "");
  };
  for (CLI::App* command : app.get_subcommands(std::function<bool(CLI::App*)>())) {
    for (CLI::Option* option : command->get_options(std::function<bool(CLI::Option*)>())) {
      if (option->get_items_expected_max() > 0) option->check(CLI::Validator(check, ""));
    }
  }
}

OptionHelp help_of_option(const CLI::Option& o) {
  OptionHelp help;
  help.is_argument = o.get_positional();
  help.required = o.get_required();
  help.group = o.get_group();
  help.meaning = o.get_description();
  if (help.is_argument) {
    help.name = o.get_name(true);
  } else {
    help.name = "--" + o.get_lnames().front();
    if (!o.get_snames().empty()) help.brief = "-" + o.get_snames().front();
  }
  if (o.get_items_expected_max() > 0) {
    const std::string type = o.get_type_name();
    help.value = type.substr(0, type.find(':'));  // bounds follow
  }
  return help;
}

}  // namespace

std::unique_ptr<CLI::App> make_command_line(int& status) {
  auto app = std::make_unique<CLI::App>("Sluice trains models that do not fit your GPU.", "sluice");
  app->set_help_flag("-h,--help", "print this and end")->group("Options");
  app->set_version_flag("-v,--version", sluice::core::version_text(),
                        "print version, commit and backends, and end")
      ->group("Options");
  app->require_subcommand(1);
  add_run_commands(*app, status);
  add_model_commands(*app, status);
  add_machine_commands(*app, status);
  add_help(*app, status);
  add_installed(*app);
  refuse_empty_values(*app);
  return app;
}

std::vector<OptionHelp> options_of(const CLI::App& app) {
  std::vector<OptionHelp> arguments, options;
  for (const CLI::Option* o : app.get_options()) {
    OptionHelp help = help_of_option(*o);
    (help.is_argument ? arguments : options).push_back(std::move(help));
  }
  // --help comes last, as what all commands have.
  if (!options.empty()) std::rotate(options.begin(), options.begin() + 1, options.end());
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

std::vector<CommandHelp> commands_of(const CLI::App& app) {
  std::vector<CommandHelp> commands;
  for (const CLI::App* command : app.get_subcommands(std::function<bool(const CLI::App*)>())) {
    if (command->get_group().empty()) continue;
    CommandHelp help{command->get_name(), command->get_description(), options_of(*command), {}};
    std::istringstream lines(command->get_footer());
    for (std::string line; std::getline(lines, line);) help.examples.push_back(line);
    commands.push_back(std::move(help));
  }
  return commands;
}

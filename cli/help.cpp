// SPDX-License-Identifier: Apache-2.0
#include "help.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/nearest.h"
#include "command_line.h"
#include "commands/commands.h"

namespace {

constexpr size_t kMostWidth = 100, kColumn = 24;

// The words, broken into lines from `column` on; the cursor stands at `at`.
std::string wrapped(const std::string& words, size_t at, size_t column) {
  std::string out;
  if (at + 2 > column) {
    out += '\n';
    at = 0;
  }
  out += std::string(column - at, ' ');
  at = column;
  const size_t columns = sluice::core::text_columns();
  const size_t width = columns == 0 ? kMostWidth : std::min(columns, kMostWidth);
  std::istringstream in(words);
  for (std::string word; in >> word;) {
    if (at > column && at + 1 + word.size() > width) {
      out += '\n' + std::string(column, ' ');
      at = column;
    }
    if (at > column) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
  }
  return out + '\n';
}

std::string line_of(const std::string& name, const std::string& meaning) {
  return "  " + name + wrapped(meaning, 2 + name.size(), kColumn);
}

std::string name_of(const OptionHelp& o) {
  std::string out = o.brief.empty() ? o.name : o.brief + ", " + o.name;
  if (!o.is_argument && !o.value.empty()) out += ' ' + o.value;
  return out;
}

std::string in_groups(const std::vector<OptionHelp>& options) {
  std::vector<std::string> groups;
  for (const OptionHelp& o : options) {
    if (std::find(groups.begin(), groups.end(), o.group) == groups.end()) groups.push_back(o.group);
  }
  std::string out;
  for (const std::string& group : groups) {
    out += '\n' + group + ":\n";
    for (const OptionHelp& o : options) {
      if (o.group == group) out += line_of(name_of(o), o.meaning);
    }
  }
  return out;
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word.front() == '-';
}

std::vector<std::string> names_of(const std::vector<OptionHelp>& options) {
  std::vector<std::string> names;
  for (const OptionHelp& o : options) {
    if (o.is_argument) continue;
    names.push_back(o.name);
    if (!o.brief.empty()) names.push_back(o.brief);
  }
  return names;
}

// "; did you mean 'plan'?", or nothing where no name is close.
std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::string found = sluice::core::nearest(word, names);
  return sluice::core::similar(word, found) ? "; did you mean '" + found + "'?" : "";
}

std::string unknown_option(const std::vector<CommandHelp>& commands, const CommandHelp& command,
                           const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::string hint = suggestion(name, names_of(command.options));
  if (hint.empty()) {
    std::string owners;
    for (const CommandHelp& c : commands) {
      const auto names = names_of(c.options);
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        owners += (owners.empty() ? "" : ", ") + ("sluice " + c.name);
      }
    }
    if (!owners.empty()) hint = "; it belongs to " + owners;
  }
  return "sluice " + command.name + ": there is no option '" + name + "'" + hint + "\nsluice " +
         command.name + " --help lists all";
}

// The parser's error in a sentence: its own words count values instead of naming what to do.
std::string describe(const CLI::ParseError& e) {
  const std::string what = e.what();
  const auto parts = [&](const std::string& middle) {
    const size_t at = what.find(middle);
    return at == what.npos ? std::pair<std::string, std::string>()
                           : std::pair(what.substr(0, at), what.substr(at + middle.size()));
  };
  if (const auto [name, times] = parts(": At Most 1 required but received "); !name.empty())
    return name + " is given " + times + " times; give it once";
  if (const auto [name, least] = parts(": At least "); !name.empty())
    return name + " needs at least " + least.substr(0, least.find(' ')) + " values";
  if (const auto [name, rest] = parts(": 1 required "); !name.empty())
    return name + " needs a value: " + rest.substr(0, rest.find(' '));
  if (const auto [name, other] = parts(" excludes "); !name.empty())
    return name + " and " + other + " ask for different things; give one of them";
  if (const auto [name, other] = parts(" requires "); !name.empty())
    return name + " needs " + other + " beside it";
  return what;
}

}  // namespace

std::string list_of_commands(const CLI::App& app) {
  std::string out = app.get_description() + "\n\nUsage: sluice COMMAND [OPTIONS]\n\nCommands:\n";
  for (const CommandHelp& c : commands_of(app)) out += line_of(c.name, c.meaning);
  out += in_groups(options_of(app));
  return out + "\nsluice help COMMAND says more of one.\nA first run: sluice train configs/quickstart.toml\n";
}

std::string help_of(const CLI::App& app, const std::string& command) {
  std::string out;
  for (const CommandHelp& c : commands_of(app)) {
    if (c.name != command) continue;
    std::string usage = "Usage: sluice " + c.name + " [OPTIONS]";
    for (const OptionHelp& o : c.options) {
      if (o.is_argument) usage += ' ' + (o.required ? o.name : '[' + o.name + ']');
    }
    out = usage + "\n\nsluice " + c.name + ": " + c.meaning + '\n' + in_groups(c.options) + "\nExamples:\n";
    for (const std::string& line : c.examples) out += "  " + line + '\n';
  }
  return out;
}

std::string unknown_command(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CommandHelp& c : commands_of(app)) names.push_back(c.name);
  return "sluice: unknown command '" + name + "'" + suggestion(name, names) + "\nsluice help lists all";
}

std::string describe(const CLI::App& app, const CLI::ParseError& e) {
  const std::vector<CommandHelp> commands = commands_of(app);
  const std::vector<std::string> rest = app.remaining(true);
  const auto parsed = app.get_subcommands();
  if (parsed.empty()) {
    if (rest.empty()) return std::string("sluice: ") + e.what();
    if (!is_flag(rest.front())) return unknown_command(app, rest.front());
    return "sluice: there is no option '" + rest.front() + "'" +
           suggestion(rest.front(), names_of(options_of(app))) +
           "\nsluice help lists the commands, whose options follow them";
  }
  const std::string name = parsed.front()->get_name();
  const auto command =
      std::find_if(commands.begin(), commands.end(), [&](const CommandHelp& c) { return c.name == name; });
  if (command == commands.end()) return std::string("sluice: ") + e.what();
  // A mistyped option explains what else is wrong: its value was taken for an argument, or a required option
  // is missing.
  for (const std::string& word : rest) {
    if (is_flag(word)) return unknown_option(commands, *command, word);
  }
  const std::string what = rest.empty() ? describe(e) : "there is no place for '" + rest.front() + "'";
  return "sluice " + name + ": " + what + "\nsluice " + name + " --help shows how to call it";
}

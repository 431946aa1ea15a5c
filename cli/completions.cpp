// SPDX-License-Identifier: Apache-2.0
#include "completions.h"

#include <map>
#include <vector>

#include "command_line.h"
#include "commands/commands.h"

namespace {

std::string with_spaces(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// Candidates for a place, by the name of its value.
struct Offer {
  std::vector<std::string> words;
  bool files = false, folders = false, keys = false;
};
Offer offer_of(const CLI::App& app, const std::string& value) {
  const sluice::core::Names names = sluice::core::names();
  Offer offer;
  if (value == "MACHINE") offer.words = names.machines;
  if (value == "MACHINES") {
    offer.words = names.machines;
    offer.words.insert(offer.words.begin(), "all");
  }
  if (value == "BENCH") offer.words = names.benches;
  if (value == "BACKEND") offer.words = names.backends;
  if (value == "NAME[,NAME]") offer.words = names.passes;
  if (value == "MODEL") offer.words = names.models;
  if (value == "WHAT[,WHAT]") offer.words = names.allowed;
  if (value == "OPTIMIZER") offer.words = names.recipes;
  if (value == "COMMAND") {
    for (const CommandHelp& c : commands_of(app)) offer.words.push_back(c.name);
  }
  if (value == "KEY") {
    for (const sluice::core::Key& key : sluice::core::all_keys()) offer.words.push_back(key.name);
  }
  offer.files = value == "FILE" || value == "MODEL" || value == "BEFORE AFTER";
  offer.folders = value == "DIR";
  offer.keys = value == "KEY=VALUE";
  return offer;
}

// The value of the arguments that stand by themselves, where they all are of one kind; else that of the last.
std::string value_of_arguments(const CommandHelp& c) {
  std::string value;
  for (const OptionHelp& o : c.options) {
    if (o.is_argument) value = o.value;
  }
  return value;
}

std::vector<std::string> option_names(const std::vector<OptionHelp>& options) {
  std::vector<std::string> names;
  for (const OptionHelp& o : options) {
    if (!o.is_argument) names.push_back(o.name);
  }
  return names;
}

std::string key_words() {
  std::vector<std::string> words;
  for (const sluice::core::Key& key : sluice::core::all_keys()) words.push_back(key.name + "=");
  return with_spaces(words);
}

// --- bash

std::string bash_offer(const CLI::App& app, const std::string& value) {
  const Offer offer = offer_of(app, value);
  if (offer.keys)
    return "COMPREPLY=($(compgen -W \"$keys\" -- \"$current\")); compopt -o nospace 2>/dev/null";
  std::string flags;
  if (offer.files) flags += "-f ";
  if (offer.folders) flags += "-d ";
  if (!offer.words.empty()) flags += "-W '" + with_spaces(offer.words) + "' ";
  if (flags.empty()) return ":";
  std::string out = "COMPREPLY=($(compgen " + flags + "-- \"$current\"))";
  if (offer.files || offer.folders) out += "; compopt -o filenames 2>/dev/null";
  return out;
}

std::string bash(const CLI::App& app) {
  std::vector<std::string> commands;
  std::map<std::string, std::string> offers;  // of options that take a value; one name means one thing
  std::string by_command;
  for (const CommandHelp& c : commands_of(app)) {
    commands.push_back(c.name);
    for (const OptionHelp& o : c.options) {
      if (!o.is_argument && !o.value.empty()) offers[o.name] = bash_offer(app, o.value);
    }
    by_command += "    " + c.name + ")\n      options='" + with_spaces(option_names(c.options)) +
                  "'\n      if [[ $current != -* ]]; then " + bash_offer(app, value_of_arguments(c)) +
                  "; return; fi\n      ;;\n";
  }
  std::string by_option;
  for (const auto& [name, offer] : offers) by_option += "    " + name + ") " + offer + "; return ;;\n";
  return "# Completion of sluice for bash; made from its options.\n"
         "_sluice() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options\n"
         "  local keys='" +
         key_words() +
         "'\n"
         "  COMPREPLY=()\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    COMPREPLY=($(compgen -W '" +
         with_spaces(commands) + " " + with_spaces(option_names(options_of(app))) +
         "' -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  case $previous in\n" +
         by_option +
         "  esac\n"
         "  case ${COMP_WORDS[1]} in\n" +
         by_command +
         "    *) return ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
         "}\n"
         "complete -F _sluice sluice\n";
}

// --- zsh

// Within single quotes, and without what _arguments takes for its own.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == ':' || c == '[' || c == ']' || c == '\\') {
      out += std::string("\\") + c;
    } else {
      out += c;
    }
  }
  return out;
}

// ":message:action" for what may stand in a place.
std::string zsh_offer(const CLI::App& app, const std::string& value) {
  const Offer offer = offer_of(app, value);
  const std::string message = ":" + zsh_text(value) + ":";
  if (offer.keys) return message + "_sluice_keys";
  if (offer.folders) return message + "_files -/";
  if (offer.files && offer.words.empty()) return message + "_files";
  if (offer.files) {
    return message + "_alternative \"names\\:name\\:(" + with_spaces(offer.words) +
           ")\" \"files\\:file\\:_files\"";
  }
  if (!offer.words.empty()) return message + "(" + with_spaces(offer.words) + ")";
  return message;
}

std::string zsh(const CLI::App& app) {
  std::string list, cases;
  for (const CommandHelp& c : commands_of(app)) {
    list += "    '" + c.name + ":" + zsh_text(c.meaning) + "'\n";
    cases += "    " + c.name + ")\n      _arguments";
    int place = 0;
    for (const OptionHelp& o : c.options) {
      cases += " \\\n        '";
      if (o.is_argument) {
        cases += std::to_string(++place) + (o.required ? "" : ":") + zsh_offer(app, o.value);
      } else {
        const bool repeats = o.value == "KEY=VALUE";
        cases += (repeats ? "*" : "") + o.name + "[" + zsh_text(o.meaning) + "]";
        if (o.value == "BEFORE AFTER") {
          cases += ":BEFORE:_files:AFTER:_files";
        } else if (!o.value.empty()) {
          cases += zsh_offer(app, o.value);
        }
      }
      cases += "'";
    }
    cases += "\n      ;;\n";
  }
  return "#compdef sluice\n"
         "# Completion of sluice for zsh; made from its options.\n"
         "_sluice_keys() {\n"
         "  local -a keys=(" +
         key_words() +
         ")\n"
         "  compadd -S '' -- $keys\n"
         "}\n"
         "_sluice() {\n"
         "  local -a commands=(\n" +
         list +
         "  )\n"
         "  if ((CURRENT == 2)); then\n"
         "    _describe command commands\n"
         "    compadd -- " +
         with_spaces(option_names(options_of(app))) +
         "\n"
         "    return\n"
         "  fi\n"
         "  shift words\n"
         "  ((CURRENT--))\n"
         "  case $words[1] in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _sluice ]]; then _sluice \"$@\"; else compdef _sluice sluice; fi\n";
}

// --- fish

std::string fish_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return "'" + out + "'";
}

// Options of `complete` for what may stand in a place; `takes` follows where a value must.
std::string fish_offer(const CLI::App& app, const std::string& value, const std::string& takes) {
  const Offer offer = offer_of(app, value);
  if (offer.keys) return takes + " -f -a " + fish_text(key_words());
  std::string out = takes;
  if (offer.folders) return out + " -f -a '(__fish_complete_directories)'";
  if (!offer.files) out += " -f";
  if (offer.files) out += " -F";
  if (!offer.words.empty()) out += " -a " + fish_text(with_spaces(offer.words));
  return out;
}

std::string fish(const CLI::App& app) {
  std::string out = "# Completion of sluice for fish; made from its options.\ncomplete -c sluice -f\n";
  for (const OptionHelp& o : options_of(app)) {
    out += "complete -c sluice -n __fish_use_subcommand -l " + o.name.substr(2) + " -d " +
           fish_text(o.meaning) + "\n";
  }
  for (const CommandHelp& c : commands_of(app)) {
    out += "complete -c sluice -n __fish_use_subcommand -a " + c.name + " -d " + fish_text(c.meaning) + "\n";
    const std::string here = "complete -c sluice -n '__fish_seen_subcommand_from " + c.name + "'";
    for (const OptionHelp& o : c.options) {
      if (o.is_argument) continue;
      out += here + " -l " + o.name.substr(2) + " -d " + fish_text(o.meaning);
      if (!o.value.empty()) out += fish_offer(app, o.value, " -r");
      out += "\n";
    }
    const std::string value = value_of_arguments(c);
    const Offer offer = offer_of(app, value);
    if (offer.files || !offer.words.empty()) out += here + fish_offer(app, value, "") + "\n";
  }
  return out;
}

}  // namespace

std::string completions(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash(app);
  return shell == "zsh" ? zsh(app) : fish(app);
}

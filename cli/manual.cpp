// SPDX-License-Identifier: Apache-2.0
#include "manual.h"

#include "command_line.h"
#include "commands/commands.h"

namespace {

// Text in which nothing is a request or an escape, and hyphens can be copied.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '.' && out.empty()) {
      out += "\\&.";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(const std::string& text) {
  return "\\fB" + plain(text) + "\\fR";
}
std::string italic(const std::string& text) {
  return "\\fI" + plain(text) + "\\fR";
}

// A term and what is said of it.
std::string entry(const std::string& term, const std::string& meaning) {
  return ".TP\n" + term + "\n" + plain(meaning) + "\n";
}

std::string term_of(const OptionHelp& o) {
  if (o.is_argument) return italic(o.name);
  std::string out = o.brief.empty() ? bold(o.name) : bold(o.brief) + ", " + bold(o.name);
  if (!o.value.empty()) out += " " + italic(o.value);
  return out;
}

std::string section_of(const CommandHelp& c) {
  std::string usage = ".B sluice " + plain(c.name) + "\n[\\fIOPTIONS\\fR]";
  for (const OptionHelp& o : c.options) {
    if (o.is_argument) usage += ' ' + (o.required ? italic(o.name) : '[' + italic(o.name) + ']');
  }
  std::string out = ".SS " + plain(c.name) + "\n" + usage + "\n.PP\n" + plain(c.meaning) + ".\n";
  for (const OptionHelp& o : c.options) out += entry(term_of(o), o.meaning);
  out += ".PP\nExamples:\n.PP\n.nf\n.RS\n";
  for (const std::string& line : c.examples) out += plain(line) + "\n";
  return out + ".RE\n.fi\n";
}

}  // namespace

std::string manual(const CLI::App& app) {
  const sluice::core::Release release = sluice::core::release();
  std::string out = ".TH SLUICE 1 \"" + release.date + "\" \"sluice " + release.version +
                    "\" \"User Commands\"\n.SH NAME\nsluice \\- train transformers under hard memory caps\n"
                    ".SH SYNOPSIS\n.B sluice\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n" +
                    plain(app.get_description()) +
                    "\nA cap on device memory and one on host memory are given; it searches for the fastest "
                    "schedule of computation,\ntransfers and recomputation that stays under both, proves the "
                    "schedule correct, and runs it.\n";
  for (const OptionHelp& o : options_of(app)) out += entry(term_of(o), o.meaning);
  out += ".SH COMMANDS\n";
  for (const CommandHelp& c : commands_of(app)) out += section_of(c);
  out += ".SH KEYS\nWhat a configuration file may set, and\n.B \\-\\-set\non the command line.\n";
  for (const sluice::core::Key& key : sluice::core::all_keys()) {
    out += entry(bold(key.name) + " (" + plain(key.value) + ")", key.meaning + " (" + key.allowed + ")");
  }
  out +=
      ".SH EXIT STATUS\n" + entry("0", "It is done.") +
      entry("1", "It failed, and standard error says why.") +
      entry("2", "The command line was not understood.") +
      entry("3", "There was nothing left to do: all steps had been made before.") +
      entry("4",
            "A checkpoint was refused: a value is not finite, or a mean of squares negative. Those before "
            "stay.") +
      entry("75", "It was interrupted, and the same command goes on from what it saved.") +
      entry("128+N", "Signal N ended it; nothing had been done that could be saved.") + ".SH SIGNALS\n" +
      "Once steps run, SIGINT, SIGTERM and SIGHUP end a run after its step, with a checkpoint; before, and "
      "the second time, at once. SIGUSR1 writes a checkpoint and the run goes on. SIGUSR2 has it plan "
      "again.\n";
  return out;
}

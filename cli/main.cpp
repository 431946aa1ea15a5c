// SPDX-License-Identifier: Apache-2.0
// The command line: parse, call, print.
#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "command_line.h"
#include "commands/say.h"
#include "help.h"
#include "host/mapped_ranges.h"
#include "interrupt.h"

namespace {

using sluice::core::say;
using sluice::core::say_exactly;

// A standard stream that is closed would be the next file that is opened, and get what is printed.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int opened = open("/dev/null", O_RDWR);
  }
}

// Exceptions come from libraries that lack memory or threads, and on any thread: they end the process here.
[[noreturn]] void end_in_one_sentence() {
  const char* what = "the program cannot go on";
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    what = "there is not enough memory for this";
  } catch (const std::exception& e) {
    what = e.what();
  } catch (...) {
  }
  try {
    say(stderr, "sluice: {}\n", what);
  } catch (...) {  // for want of memory: no words of others then
    say_exactly(stderr, "sluice: there is not enough memory for this\n");
  }
  std::_Exit(1);
}

// The status of the program, once the streams that it printed on are asked whether they took it all. A run
// is not its output; that of other commands is all there is.
int status_with_output(int status) {
  const auto lost = [](FILE* out) { return std::fflush(out) != 0 || std::ferror(out) != 0; };
  const bool out = lost(stdout), err = lost(stderr);
  if (out) say(stderr, "sluice: standard output could not be written: some of what was printed is lost\n");
  if (err && !out)
    say("sluice: standard error could not be written: some of what was printed there is lost\n");
  return out && status == 0 && !watches_signals() ? 1 : status;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMisused = 2;
  open_standard_streams();
  sluice::core::name_files_that_shrink();
  std::set_terminate(end_in_one_sentence);
  // A file beyond the limit of its size (ulimit -f) is an error with the file's name, not the end of the
  // process.
  std::signal(SIGXFSZ, SIG_IGN);
  int status = 0;
  const auto app = make_command_line(status);
  if (argc < 2) {
    say_exactly(stderr, list_of_commands(*app));
    return kMisused;
  }
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto parsed = app->get_subcommands();
    const std::string text =
        parsed.empty() ? list_of_commands(*app) : help_of(*app, parsed.front()->get_name());
    say("{}", text);
  } catch (const CLI::CallForVersion& version) {
    say("{}\n", version.what());
  } catch (const CLI::ParseError& e) {
    say(stderr, "{}\n", describe(*app, e));
    return kMisused;
  }
  return status_with_output(status);
}

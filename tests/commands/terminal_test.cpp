// SPDX-License-Identifier: Apache-2.0
// What is printed depends on the terminal, and on what its user asks for.
#include "commands/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "commands/progress_line.h"

namespace sluice::core {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

// A terminal of so many columns, and what was written to it.
struct Terminal {
  explicit Terminal(unsigned short columns) {
    control = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(control), unlockpt(control);
    out = File(fdopen(open(ptsname(control), O_RDWR | O_NOCTTY), "w"), std::fclose);
    winsize size{24, columns, 0, 0};
    ioctl(control, TIOCSWINSZ, &size);
  }
  ~Terminal() { close(control); }
  // A read may return a part of it: all is there when the mark behind it is.
  std::string written() const {
    constexpr char kMark = 1;
    std::fputc(kMark, out.get());
    std::fflush(out.get());
    std::string text;
    char bytes[4096];
    while (!text.ends_with(kMark)) {
      const ssize_t n = read(control, bytes, sizeof bytes);
      if (n <= 0) return text;
      text.append(bytes, size_t(n));
    }
    text.pop_back();
    return text;
  }

  int control = -1;
  File out{nullptr, std::fclose};
};

// A variable of the environment, for as long as this lives; none: it is not there.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(Terminal, ColoursAreForTerminalsWhoseUserWantsThem) {
  const Terminal terminal(80);
  const File file(std::tmpfile(), std::fclose);
  const Variable plain("TERM", "xterm"), wanted("NO_COLOR", nullptr);
  EXPECT_TRUE(takes_colours(terminal.out.get()));
  EXPECT_FALSE(takes_colours(file.get()));
  {
    const Variable unwanted("NO_COLOR", "1");
    EXPECT_FALSE(takes_colours(terminal.out.get()));
    EXPECT_TRUE(rewrites(terminal.out.get()));
  }
  const Variable dumb("TERM", "dumb");
  EXPECT_FALSE(takes_colours(terminal.out.get()));
  EXPECT_FALSE(rewrites(terminal.out.get()));
}

TEST(Terminal, ADumbOneGetsLines) {
  const Terminal terminal(80);
  const Variable dumb("TERM", "dumb");
  { ProgressLine(terminal.out.get()).show("step 1", true); }
  EXPECT_EQ(terminal.written(), "step 1\r\n");  // its line discipline makes the two of one
}

TEST(Terminal, AProgressLineIsNoWiderThanIt) {
  const Terminal terminal(60);
  const Variable plain("TERM", "xterm"), none("COLUMNS", nullptr);
  { ProgressLine(terminal.out.get()).show(std::string(100, 'x'), true); }
  EXPECT_EQ(terminal.written(), "\r" + std::string(59, 'x') + "\r\n");
}

TEST(Terminal, ColumnsAreTheVariableSOrTheTerminalSOrAny) {
  const Terminal terminal(100);
  const File file(std::tmpfile(), std::fclose);
  {
    const Variable none("COLUMNS", nullptr);
    EXPECT_EQ(columns_of(terminal.out.get()), 100u);
    EXPECT_EQ(columns_of(file.get()), 0u);
  }
  {
    const Variable said("COLUMNS", "60");
    EXPECT_EQ(columns_of(terminal.out.get()), 60u);
    EXPECT_EQ(columns_of(file.get()), 60u);
  }
  const Variable nonsense("COLUMNS", "wide");
  EXPECT_EQ(columns_of(terminal.out.get()), 100u);
}

// Open MPI's launcher copies what processes print on terminals of its own to a file, perhaps.
TEST(Terminal, OneOfALauncherGetsLines) {
  const Terminal terminal(80);
  const Variable plain("TERM", "xterm"), launched("OMPI_COMM_WORLD_SIZE", "2");
  EXPECT_FALSE(rewrites(terminal.out.get()));
  { ProgressLine(terminal.out.get()).show("step 1", true); }
  EXPECT_EQ(terminal.written(), "step 1\r\n");
}

}  // namespace
}  // namespace sluice::core

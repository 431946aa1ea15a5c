// SPDX-License-Identifier: Apache-2.0
#include "commands/progress_line.h"

#include <gtest/gtest.h>

#include <memory>

namespace sluice::core {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

std::string content(FILE* file) {
  std::string out(size_t(std::ftell(file)), '\0');
  std::rewind(file);
  out.resize(std::fread(out.data(), 1, out.size(), file));
  return out;
}

TEST(ProgressLine, EndsWhenItGoes) {
  const File file(std::tmpfile(), std::fclose);
  {
    ProgressLine line(file.get(), true);
    line.show("step 10", false);
    line.show("step 9", false);
  }
  EXPECT_EQ(content(file.get()), "\rstep 10\rstep 9 \n");
}

TEST(ProgressLine, EndsOnce) {
  const File file(std::tmpfile(), std::fclose);
  {
    ProgressLine line(file.get(), true);
    line.show("step 1", false);
    line.end();
  }
  EXPECT_EQ(content(file.get()), "\rstep 1\n");
}

TEST(ProgressLine, ElsewhereThanOnATerminalItIsLines) {
  const File file(std::tmpfile(), std::fclose);
  { ProgressLine(file.get(), false).show("step 1", true); }
  EXPECT_EQ(content(file.get()), "step 1\n");
}

}  // namespace
}  // namespace sluice::core

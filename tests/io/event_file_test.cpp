// SPDX-License-Identifier: Apache-2.0
#include "io/event_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

// Values of RFC 3720, B.4.
TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += char(i);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(""), 0u);
}

// The bytes that PyPI's tensorboard 2.21 reads back as they were meant; the second record is the START of
// step 300, from which on it forgets what other files say.
TEST(EventFile, IsWhatTensorBoardReads) {
  const TempDir dir;
  {
    auto file = EventFile::create(dir.path(), 1000.5, 300);
    ASSERT_TRUE(file.ok()) << file.message();
    const std::pair<std::string_view, double> values[] = {{"loss", 2.5}, {"not", std::nan("")}, {"lr", 0.25}};
    ASSERT_TRUE(file->add(1001, 300, values).ok());
  }
  const auto names = list_files(dir.path());
  ASSERT_TRUE(names.ok() && names->size() == 1);
  EXPECT_TRUE((*names)[0].string().starts_with("events.out.tfevents.1000."));
  const std::string bytes = *read_file(dir / (*names)[0].string());
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  EXPECT_EQ(
      hex,
      "1800000000000000a37f4b22090000000000448f401a0d627261696e2e4576656e743a32aba33345"
      "100000000000000095fbfe18090000000000448f4010ac023a020801e1133350"
      "2600000000000000734fe300090000000000488f4010ac022a180a0b0a046c6f737315000020400a090a026c72150000803e"
      "cbeabeb2");
}

// A run that goes on makes the steps since its checkpoint again: each is there once.
TEST(EventFile, ARunThatGoesOnHasEachStepOnce) {
  const TempDir dir;
  const auto write = [&](int64_t first, int64_t last) {
    auto file = EventFile::create(dir.path(), 1000, first);
    ASSERT_TRUE(file.ok()) << file.message();
    for (int64_t step = first; step <= last; ++step) {
      const std::pair<std::string_view, double> values[] = {{"loss", 1.0 / double(step)}};
      ASSERT_TRUE(file->add(1000, step, values).ok());
    }
  };
  const auto files = [&] {
    std::vector<std::string> contents;
    const auto names = list_files(dir.path());
    for (const auto& name : *names) contents.push_back(*read_file(dir / name.string()));
    std::ranges::sort(contents, {}, &std::string::size);
    return contents;
  };
  write(1, 300);
  ASSERT_EQ(files().size(), 1u);
  const std::string whole = files()[0];
  // Nobody else's, no links, and nothing that is before.
  dir.add("events.out.tfevents.1.host", whole);
  std::filesystem::create_symlink(dir / "events.out.tfevents.1.host", dir / "events.out.tfevents.2.sluice.1");
  write(301, 310);
  EXPECT_EQ(files()[1], whole);
  std::filesystem::remove(dir / "events.out.tfevents.2.sluice.1");
  std::filesystem::remove(dir / "events.out.tfevents.1.host");
  // The second file goes, and of the first what comes before step 201.
  write(201, 200);
  ASSERT_EQ(files().size(), 2u);
  const std::string kept = files()[1];
  EXPECT_EQ(kept, whole.substr(0, kept.size()));
  EXPECT_EQ((whole.size() - kept.size()) % 100, 0u) << "whole records of 100 steps";
  EXPECT_EQ(files()[0].size(), 40u + 32u) << "of the last one what begins a file";
  // What a killed process wrote half of ends a file, too.
  const auto names = list_files(dir.path());
  for (const auto& name : *names) {
    if (read_file(dir / name.string())->size() == kept.size())
      dir.add(name.string(), kept.substr(0, kept.size() - 3));
  }
  write(1000, 999);
  EXPECT_EQ(files().back(), whole.substr(0, kept.size() - (whole.size() - kept.size()) / 100));
  // From the beginning: nothing is left but the new one.
  write(0, -1);
  EXPECT_EQ(files().size(), 1u);
}

// The bytes of which PyPI's tensorboard 2.21 says: step 300, samples, two texts.
TEST(EventFile, HasTexts) {
  const TempDir dir;
  {
    auto file = EventFile::create(dir.path(), 1000.5, 300);
    ASSERT_TRUE(file.ok()) << file.message();
    const std::string texts[] = {"one", "two"};
    ASSERT_TRUE(file->add(1001, 300, "samples", texts).ok());
  }
  const auto names = list_files(dir.path());
  ASSERT_TRUE(names.ok() && names->size() == 1);
  const std::string bytes = *read_file(dir / (*names)[0].string());
  std::string hex;
  for (const char c : bytes.substr(72)) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  EXPECT_EQ(hex,
            "3700000000000000e7e8ca59090000000000488f4010ac022a290a270a0773616d706c65734a080a060a0474657874"
            "4212080712041202080242036f6e65420374776faef37473");
}

}  // namespace
}  // namespace sluice::core

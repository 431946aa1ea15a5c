// SPDX-License-Identifier: Apache-2.0
#include "io/event_file.h"

#include <gtest/gtest.h>

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

// SPDX-License-Identifier: Apache-2.0
#include "io/pieces.h"

#include <gtest/gtest.h>

#include <string>

#include "support/temp_dir.h"

namespace sluice::core {
namespace {

TEST(Pieces, AreTheBytesInOrder) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 300000; ++i) text += std::to_string(i);
  const auto path = dir.add("text", text);
  const auto size = int64_t(text.size());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, size}, {1000001, size}, {5, 9}, {7, 7}}) {
    std::string read;
    size_t largest = 0;
    const Status status = read_pieces(path, begin, end, [&](std::string_view piece) {
      read += piece;
      largest = std::max(largest, piece.size());
      return Status();
    });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(read == text.substr(size_t(begin), size_t(end - begin))) << begin << " " << end;
    EXPECT_LE(largest, size_t{1} << 20);
  }
}

TEST(Pieces, OfAFileThatIsShorterAreAnError) {
  const TempDir dir;
  const auto path = dir.add("text", "12345");
  const Status status = read_pieces(path, 2, 9, [](std::string_view) { return Status(); });
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("ends after 5 bytes, there were 9"), std::string::npos) << status.message();
  EXPECT_EQ(read_pieces(dir / "none", 0, 1, [](std::string_view) { return Status(); }).error().kind,
            ErrorKind::NotFound);
}

TEST(Pieces, EndWithTheFirstError) {
  const TempDir dir;
  const auto path = dir.add("text", std::string(size_t{3} << 20, 'x'));
  int calls = 0;
  const Status status = read_pieces(path, 0, 3 << 20, [&](std::string_view) -> Status {
    ++calls;
    return error("enough");
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace sluice::core

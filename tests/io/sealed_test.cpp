// SPDX-License-Identifier: Apache-2.0
// A file of a cache is taken whole and for its own request, or not at all.
#include "io/sealed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/checksum.h"
#include "io/file.h"
#include "support/temp_dir.h"

namespace sluice::core {
namespace {

SealedRequest request(int64_t tokens = 128) {
  SealedRequest r("example 1");
  r.add("machine", "an \\ odd\nname").add("tokens", tokens).add("rate", 0.1);
  return r;
}

const std::string kContent("first\0second\n", 13);

TEST(Sealed, IsReadBack) {
  const TempDir dir;
  ASSERT_TRUE(write_sealed(dir / "x", request(), kContent).ok());
  EXPECT_EQ(*read_sealed(dir / "x", request()), kContent);
  EXPECT_EQ(read_sealed(dir / "y", request()).error().kind, ErrorKind::NotFound);
}

TEST(Sealed, NamesWhatElseItWasMadeFor) {
  const TempDir dir;
  ASSERT_TRUE(write_sealed(dir / "x", request(), kContent).ok());
  const std::string path = (dir / "x").string();
  EXPECT_EQ(read_sealed(dir / "x", request(64)).message(),
            path + " was made for 'tokens = 128', not for 'tokens = 64'");
  SealedRequest more = request();
  more.add("threads", 2);
  EXPECT_EQ(read_sealed(dir / "x", more).message(), path + " was made for nothing, not for 'threads = 2'");
  EXPECT_EQ(read_sealed(dir / "x", SealedRequest("example 2")).message(),
            path + " begins with 'sluice example 1'; 'sluice example 2' was expected");
}

TEST(Sealed, KeysAreOfTheWholeRequest) {
  EXPECT_EQ(request().key(), request().key());
  EXPECT_NE(request().key(), request(64).key());
  EXPECT_NE(SealedRequest("a").add("x", 1).key(), SealedRequest("b").add("x", 1).key());
  EXPECT_NE(SealedRequest("a").add("x", "1\ny = 2").key(), SealedRequest("a").add("x", 1).add("y", 2).key());
  EXPECT_NE(SealedRequest("a").add("x", 0.1).key(),
            SealedRequest("a").add("x", std::nextafter(0.1, 1)).key());
}

TEST(Sealed, EveryChangedByteAndEveryCutIsSeen) {
  const std::string whole = sealed_bytes(request(), kContent);
  ASSERT_TRUE(unsealed(whole, request(), "x").ok());
  for (size_t at = 0; at < whole.size(); ++at) {
    EXPECT_FALSE(unsealed(whole.substr(0, at), request(), "x").ok()) << at;
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[at] = char(changed[at] ^ (1 << bit));
      EXPECT_FALSE(unsealed(changed, request(), "x").ok()) << at << " " << bit;
    }
  }
  EXPECT_FALSE(unsealed(whole + "x", request(), "x").ok());
}

// A checksum can be right and the rest wrong.
TEST(Sealed, SizesThatCannotBe) {
  for (const std::string size : {"", "-1", "999", "99999999999999999999", "1x"}) {
    const std::string rest = size + "\nabc";
    const std::string bytes = "sluice example 1\n" + checksum_of(rest).to_text() + "\n" + rest;
    EXPECT_NE(unsealed(bytes, request(), "x").message().find("x is damaged"), std::string::npos) << size;
  }
}

}  // namespace
}  // namespace sluice::core

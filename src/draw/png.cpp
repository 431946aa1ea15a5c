// PNG files (W3C PNG specification, third edition; RFC 1950 and 1951 for the data inside): 8-bit palette,
// every row as its difference to the row above, runs of equal bytes. Flat pictures come out as small as a
// general compressor makes them.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "draw/raster.h"

namespace sluice {
namespace {

void append_big_endian(std::string& out, uint32_t v) {
  for (const int shift : {24, 16, 8, 0}) out += char(v >> shift & 255);
}

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xedb88320 & (0 - (crc & 1)));
  }
  return ~crc;
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

// Deflate with the fixed codes; the only matches are repetitions of the byte before.
class Deflate {
 public:
  explicit Deflate(std::string& out) : out_(out) {
    bits(1, 1);  // the last block
    bits(1, 2);  // fixed codes
  }
  void literal(unsigned byte) {
    if (byte < 144) {
      code(0x30 + byte, 8);
    } else {
      code(0x190 + byte - 144, 9);
    }
  }
  // The byte before `count` more times. Lengths in between are made of those that need no extra bits.
  void repeat(int64_t count, unsigned byte) {
    for (; count >= 258; count -= 258) {
      code(0xc5, 8);  // length 258
      code(0, 5);     // distance 1
    }
    for (; count >= 3; count -= std::min<int64_t>(count, 10)) {
      code(unsigned(std::min<int64_t>(count, 10)) - 2, 7);  // length 3 is symbol 257
      code(0, 5);
    }
    for (; count > 0; --count) literal(byte);
  }
  void finish() {
    code(0, 7);
    if (filled_ > 0) bits(0, 8 - filled_);
  }

 private:
  // Codes begin with their highest bit, everything else with its lowest.
  void code(unsigned value, int count) {
    for (int i = count - 1; i >= 0; --i) bits(value >> i & 1, 1);
  }
  void bits(unsigned value, int count) {
    for (int i = 0; i < count; ++i) {
      byte_ |= (value >> i & 1) << filled_;
      if (++filled_ < 8) continue;
      out_ += char(byte_);
      byte_ = 0;
      filled_ = 0;
    }
  }

  std::string& out_;
  unsigned byte_ = 0;
  int filled_ = 0;
};

std::string compress(std::string_view bytes) {
  std::string out = "\x78\x01";
  Deflate deflate(out);
  for (size_t at = 0; at < bytes.size();) {
    size_t end = at;
    while (end < bytes.size() && bytes[end] == bytes[at]) ++end;
    const auto byte = static_cast<unsigned char>(bytes[at]);
    deflate.literal(byte);
    deflate.repeat(int64_t(end - at - 1), byte);
    at = end;
  }
  deflate.finish();
  append_big_endian(out, adler32(bytes));
  return out;
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_big_endian(out, uint32_t(data.size()));
  const std::string checked = std::string(type) + std::string(data);
  out += checked;
  append_big_endian(out, crc32(checked));
}

}  // namespace

std::string encode_png(int width, int height, const std::vector<uint32_t>& palette,
                       const std::vector<uint8_t>& pixels) {
  SLUICE_CHECK(palette.size() <= 256 && pixels.size() == size_t(width) * size_t(height),
               "{} x {}: {} colours, {} pixels", width, height, palette.size(), pixels.size());
  std::string header, colours, rows;
  append_big_endian(header, uint32_t(width));
  append_big_endian(header, uint32_t(height));
  header += std::string{8, 3, 0, 0, 0};  // bits, palette, deflate, filters per row, not interlaced
  for (const uint32_t rgb : palette) {
    for (const int shift : {16, 8, 0}) colours += char(rgb >> shift & 255);
  }
  for (size_t i = 0; i < pixels.size(); ++i) {
    if (i % size_t(width) == 0) rows += char(2);  // each byte less the one above
    rows += char(pixels[i] - (i < size_t(width) ? 0 : pixels[i - size_t(width)]));
  }
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "PLTE", colours);
  append_chunk(out, "IDAT", compress(rows));
  append_chunk(out, "IEND", "");
  return out;
}

}  // namespace sluice

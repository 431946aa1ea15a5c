// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "fuzz.h"
#include "io/safetensors.h"

namespace sluice::core::fuzz {

// The first eight bytes are how much data follows the header.
void safetensors_header(Bytes input) {
  int64_t data_bytes = 0;
  if (input.size() < sizeof(data_bytes)) return;
  std::memcpy(&data_bytes, input.data(), sizeof(data_bytes));
  if (data_bytes < 0) return;
  const auto header = parse_safetensors_header(text_in(input.subspan(sizeof(data_bytes))), data_bytes);
  if (!header.ok()) return;
  int64_t sum = 0;
  std::vector<TensorInfo> tensors;
  for (const auto& tensor : header->tensors) {
    require(tensor.begin >= 0 && tensor.begin <= tensor.end && tensor.end <= data_bytes, "a tensor outside");
    sum += tensor.info.bytes();
    tensors.push_back(tensor.info);
  }
  require(sum == data_bytes, "tensors are not all of the data");
  const std::string again = format_safetensors_header(tensors, header->metadata);
  require(parse_safetensors_header(again, data_bytes).ok(), "what is written is not read");
}

std::string seed_safetensors_header() {
  const std::string text = format_safetensors_header(
      {{"a", TensorType::F32, {2, 1}}, {"b", TensorType::BF16, {3}}, {"c", TensorType::U8, {}}},
      {{"format", "pt"}});
  const int64_t data_bytes = 15;
  std::string out(sizeof(data_bytes), 0);
  std::memcpy(out.data(), &data_bytes, sizeof(data_bytes));
  return out + text;
}

void safetensors_index(Bytes input) {
  const auto index = parse_safetensors_index(text_in(input));
  if (!index.ok()) return;
  for (const auto& [tensor, file] : *index) {
    require(file.find('/') == file.npos && file != ".." && !file.empty(), "a file outside the directory");
  }
}

std::string seed_safetensors_index() {
  return R"({"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"x.safetensors"}})";
}

}  // namespace sluice::core::fuzz

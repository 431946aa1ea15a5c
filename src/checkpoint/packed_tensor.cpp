// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/elements.h"
#include "ops/packed.h"

namespace sluice::core {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
constexpr std::string_view kFp8Scales[] = {"_scale_inv", "_scale"};
constexpr std::string_view kBitsAndBytes[] = {"nf4", "fp4"};

std::string with(std::string_view name, std::string_view ending) {
  return std::string(name).append(ending);
}

// The tensor, of `bytes` bytes and of a type.
Result<const SafeTensor*> get(const TensorFiles& files, const std::string& name, TensorType type,
                              int64_t bytes) {
  SLUICE_ASSIGN(const SafeTensor* tensor, files.get(name));
  if (tensor->info.type != type)
    return error("{}: tensor {} is of {}, and {} is needed", files.path().string(), name,
                 name_of(tensor->info.type), name_of(type));
  if (int64_t(tensor->bytes.size()) != bytes)
    return error("{}: tensor {} has {} bytes, the model needs {}", files.path().string(), name,
                 tensor->bytes.size(), bytes);
  return tensor;
}

float float_at(TensorType type, std::span<const std::byte> bytes, int64_t index) {
  const int64_t size = size_of(type);
  float value = 0;
  read_elements(type, bytes.subspan(size_t(index * size), size_t(size)), std::span(&value, 1));
  return value;
}
float float_at(const SafeTensor& tensor, int64_t index) {
  return float_at(tensor.info.type, tensor.bytes, index);
}

int64_t blocks_in(int64_t size, int64_t block) {
  return (size + block - 1) / block;
}

// The power of two of which `count` blocks cover `size`: there is one at most for each count but 1. 0: none.
int64_t block_of(int64_t size, int64_t count) {
  if (count < 1) return 0;
  if (count == 1) return std::max<int64_t>(size, 1);
  const auto block = int64_t(std::bit_ceil(uint64_t(blocks_in(size, count))));
  return blocks_in(size, block) == count ? block : 0;
}

}  // namespace

Status PackedTensor::open_fp8(const SafeTensor& scales) {
  const std::vector<int64_t>& shape = scales.info.shape;
  const int64_t matrices = std::max<int64_t>(info_.elements() / std::max<int64_t>(rows_ * columns_, 1), 1);
  const int64_t count = scales.info.elements();
  scales_ = &scales;
  tensors_.push_back(&scales);
  scale_rows_ = scale_columns_ = 1;
  if (count != 1 && shape.size() >= 2) {
    scale_rows_ = shape.end()[-2], scale_columns_ = shape.back();
  } else if (count != 1) {
    scale_rows_ = rows_;
  }
  block_rows_ = block_of(rows_, scale_rows_), block_columns_ = block_of(columns_, scale_columns_);
  const bool fits = count == 1 || count == matrices * scale_rows_ * scale_columns_;
  if (!fits || block_rows_ == 0 || block_columns_ == 0 || !is_weight_type(scales.info.type))
    return error("tensor {} is of {} [{}], which are no scales of blocks, rows or all of [{}]",
                 scales.info.name, name_of(scales.info.type), fmt::join(shape, ", "),
                 fmt::join(info_.shape, ", "));
  if (count == 1) block_rows_ = rows_ * matrices;  // of all matrices
  const NumberFormat format(DType::F8E4M3,
                            scale_columns_ == 1 ? NumberFormat::kRow : uint32_t(block_columns_), DType::F32);
  if (block_columns_ % 8 == 0 && format.fits(columns_)) format_ = format;
  return {};
}

Status PackedTensor::open_bitsandbytes(const TensorFiles& files, const SafeTensor& state) {
  const std::string_view text(reinterpret_cast<const char*>(state.bytes.data()), state.bytes.size());
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto whole = [&](const char* key) -> int64_t {
    if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer()) return 0;
    return json[key].get<int64_t>();
  };
  block_ = whole("blocksize");
  constexpr int64_t kMostBlock = 1 << 20;
  if (block_ < 2 || block_ > kMostBlock || block_ % 2 != 0)
    return error("tensor {}: no even blocksize in it", state.info.name);
  bits_ = 4;
  first_is_upper_ = true;
  const std::string& name = info_.name;
  const int64_t elements = info_.elements(), blocks = blocks_in(elements, block_);
  tensors_.push_back(&state);
  SLUICE_ASSIGN(const SafeTensor* map,
                get(files, name + ".quant_map", TensorType::F32, int64_t{sizeof codes_}));
  std::memcpy(codes_.data(), map->bytes.data(), sizeof codes_);
  tensors_.push_back(map);
  if (files.find(name + ".nested_absmax") == nullptr) {
    SLUICE_ASSIGN(scales_, get(files, name + ".absmax", TensorType::F32, blocks * 4));
    tensors_.push_back(scales_);
  } else {
    nested_block_ = whole("nested_blocksize");
    const bool has_offset = json.contains("nested_offset") && json["nested_offset"].is_number();
    if (nested_block_ < 1 || !has_offset)
      return error("tensor {}: no nested_blocksize and nested_offset in it", state.info.name);
    offset_ = float(json["nested_offset"].get<double>());
    constexpr int64_t kCodes = 256;
    SLUICE_ASSIGN(scales_, get(files, name + ".absmax", TensorType::U8, blocks));
    SLUICE_ASSIGN(nested_codes_, get(files, name + ".nested_quant_map", TensorType::F32, kCodes * 4));
    SLUICE_ASSIGN(nested_,
                  get(files, name + ".nested_absmax", TensorType::F32, blocks_in(blocks, nested_block_) * 4));
    for (const SafeTensor* tensor : {scales_, nested_codes_, nested_}) tensors_.push_back(tensor);
  }
  if (codes_ == kNf4Codes && block_ % kNf4.block == 0 && kNf4.fits(columns_)) format_ = kNf4;
  return {};
}

Status PackedTensor::open_mxfp4(const TensorFiles& files) {
  const std::string& name = info_.name;
  if (columns_ % kMxfp4.block != 0)
    return error("{}: tensor {} has rows of {} elements; those of MXFP4 are multiples of {}",
                 files.path().string(), name, columns_, kMxfp4.block);
  const int64_t elements = info_.elements();
  block_ = kMxfp4.block;
  bits_ = 4;
  codes_ = kE2m1Codes;
  SLUICE_ASSIGN(const SafeTensor* blocks, get(files, with(name, kBlocks), TensorType::U8, elements / 2));
  SLUICE_ASSIGN(scales_, get(files, with(name, kScales), TensorType::U8, elements / block_));
  tensors_ = {blocks, scales_};
  format_ = kMxfp4;
  return {};
}

Result<std::optional<PackedTensor>> PackedTensor::find(const TensorFiles& files, std::string_view name,
                                                       std::span<const int64_t> shape) {
  const SafeTensor* const own = files.find(name);
  const bool mxfp4 = own == nullptr && files.find(with(name, kBlocks)) != nullptr;
  const SafeTensor* state = nullptr;
  for (const std::string_view type : kBitsAndBytes) {
    if (own != nullptr && state == nullptr)
      state = files.find(with(name, ".quant_state.bitsandbytes__").append(type));
  }
  const SafeTensor* scales = nullptr;
  for (const std::string_view ending : kFp8Scales) {
    if (own != nullptr && own->info.type == TensorType::F8_E4M3 && scales == nullptr)
      scales = files.find(with(name, ending));
  }
  if (shape.size() < 2 || (!mxfp4 && state == nullptr && scales == nullptr))
    return std::optional<PackedTensor>();
  PackedTensor out;
  out.info_ = {std::string(name), TensorType::F32, {shape.begin(), shape.end()}};
  out.rows_ = shape.end()[-2], out.columns_ = shape.back();
  if (mxfp4) {
    SLUICE_TRY(out.open_mxfp4(files));
    return std::optional(std::move(out));
  }
  out.tensors_ = {own};
  const bool as_bytes = int64_t(own->bytes.size()) == blocks_in(out.info_.elements(), 2);
  if (state != nullptr ? !as_bytes : !std::ranges::equal(own->info.shape, shape))
    return error("{}: tensor {} has shape [{}], the model needs [{}]{}", files.path().string(), name,
                 fmt::join(own->info.shape, ", "), fmt::join(shape, ", "),
                 state != nullptr ? ", two elements in a byte" : "");
  const Status opened = state != nullptr ? out.open_bitsandbytes(files, *state) : out.open_fp8(*scales);
  if (!opened.ok()) return error_at(files.path().string(), opened.error());
  return std::optional(std::move(out));
}

PackedTensor::Run PackedTensor::run_at(int64_t element) const {
  if (bits_ == 4) return {element / block_, block_ - element % block_};
  const int64_t row = element / columns_, column = element % columns_;
  // With one scale for all matrices a block has all their rows.
  const bool all = block_rows_ > rows_;
  const int64_t matrix = all ? 0 : row / rows_, in_matrix = all ? row : row % rows_;
  return {(matrix * scale_rows_ + in_matrix / block_rows_) * scale_columns_ + column / block_columns_,
          std::min(block_columns_ - column % block_columns_, columns_ - column)};
}

PackedTensor::Scales PackedTensor::all_scales() const {
  return {scales_->bytes, nested_ == nullptr ? std::span<const std::byte>() : nested_->bytes};
}

float PackedTensor::scale(int64_t index, const Scales& from) const {
  const int64_t at = index - from.first;
  if (nested_ != nullptr) {
    const float of_code = float_at(*nested_codes_, std::to_integer<int64_t>(from.own[size_t(at)]));
    const int64_t nested = index / nested_block_ - from.first_nested;
    const float scaled = of_code * float_at(nested_->info.type, from.nested, nested);
    return scaled + offset_;
  }
  if (scales_->info.type == TensorType::U8)
    return float_of_e8m0(std::to_integer<uint8_t>(from.own[size_t(at)]));
  return float_at(scales_->info.type, from.own, at);
}

float PackedTensor::number(int64_t element) const {
  const std::span<const std::byte> bytes = tensors_.front()->bytes;
  if (bits_ == 8) return E4m3::value(std::to_integer<uint8_t>(bytes[size_t(element)]));
  const auto pair = std::to_integer<uint32_t>(bytes[size_t(element / 2)]);
  return codes_[((element % 2 == 0) == first_is_upper_ ? pair >> 4 : pair & 15)];
}

Error PackedTensor::not_finite(int64_t element, float value) const {
  const int64_t index = run_at(element).scale;
  const bool scaled = std::isfinite(number(element));
  return error("tensor {}: element {} is {}; only finite values can be trained on",
               (scaled ? scales_ : tensors_.front())->info.name, scaled ? index : element,
               scaled ? scale(index) : value);
}

Status PackedTensor::read(int64_t first, std::span<float> values) const {
  const int64_t end = first + int64_t(values.size());
  for (int64_t at = first; at < end;) {
    const Run run = run_at(at);
    const float own = scale(run.scale);
    const int64_t next = std::min(end, at + run.count);
    for (; at < next; ++at) {
      const float value = number(at) * own;
      if (!std::isfinite(value)) return not_finite(at, value);
      values[size_t(at - first)] = value;
    }
  }
  return {};
}

void PackedTensor::read(int64_t first, int64_t count, PackedBlocks& blocks) const {
  const std::span<const std::byte> codes = tensors_.front()->bytes;
  const NumberFormat format = format_->over(columns_);
  const NumberFormat bare = format.type;
  blocks.elements.resize(size_t(bare.bytes(count)));
  std::memcpy(blocks.elements.data(), codes.data() + bare.bytes(first), blocks.elements.size());
  turn_codes(blocks.elements);
  put_scales(first, count, all_scales(), blocks.scales);
}

void PackedTensor::turn_codes(std::span<std::byte> codes) const {
  if (!first_is_upper_) return;
  for (std::byte& pair : codes) pair = pair << 4 | pair >> 4;
}

void PackedTensor::put_scales(int64_t first, int64_t count, const Scales& from,
                              std::vector<std::byte>& out) const {
  const NumberFormat format = format_->over(columns_);
  const int64_t size = size_of(format.scale);
  out.resize(size_t(count / format.block * size));
  std::byte* to = out.data();
  for (int64_t at = first; at < first + count; at += format.block, to += size) {
    const int64_t index = run_at(at).scale;
    if (format.scale == DType::F8E8M0) {
      *to = from.own[size_t(index - from.first)];
    } else {
      const float own = scale(index, from);
      std::memcpy(to, &own, sizeof own);
    }
  }
}

Status PackedTensor::read_scales(int64_t first, int64_t count, const ReadBytes& bytes,
                                 std::vector<std::byte>& out) const {
  const int64_t block = format_->over(columns_).block;
  int64_t least = run_at(first).scale, most = least;
  for (int64_t at = first; at < first + count; at += block) {
    const int64_t index = run_at(at).scale;
    least = std::min(least, index), most = std::max(most, index);
  }
  // Tensor's elements [from, to], as its file has them.
  const auto read = [&](const SafeTensor& tensor, int64_t from, int64_t to, std::vector<std::byte>& into) {
    const int64_t size = size_of(tensor.info.type);
    into.resize(size_t((to + 1 - from) * size));
    return bytes(tensor, from * size, into);
  };
  std::vector<std::byte> own, nested;
  SLUICE_TRY(read(*scales_, least, most, own));
  Scales scales{own, {}, least, 0};
  if (nested_ != nullptr) {
    scales.first_nested = least / nested_block_;
    SLUICE_TRY(read(*nested_, scales.first_nested, most / nested_block_, nested));
    scales.nested = nested;
  }
  put_scales(first, count, scales, out);
  return {};
}

}  // namespace sluice::core

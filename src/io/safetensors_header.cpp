// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "base/order.h"

namespace sluice::core {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();

struct TypeName {
  TensorType type;
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<TypeName, 15> kTypes{{{TensorType::F64, "F64", 8},
                                           {TensorType::F32, "F32", 4},
                                           {TensorType::F16, "F16", 2},
                                           {TensorType::BF16, "BF16", 2},
                                           {TensorType::F8_E4M3, "F8_E4M3", 1},
                                           {TensorType::F8_E5M2, "F8_E5M2", 1},
                                           {TensorType::I64, "I64", 8},
                                           {TensorType::I32, "I32", 4},
                                           {TensorType::I16, "I16", 2},
                                           {TensorType::I8, "I8", 1},
                                           {TensorType::U64, "U64", 8},
                                           {TensorType::U32, "U32", 4},
                                           {TensorType::U16, "U16", 2},
                                           {TensorType::U8, "U8", 1},
                                           {TensorType::Bool, "BOOL", 1}}};
static_assert(
    [] {
      for (size_t i = 0; i < kTypes.size(); ++i) {
        if (kTypes[i].type != static_cast<TensorType>(i)) return false;
      }
      return true;
    }(),
    "size_of and name_of index by the enum");

std::string list(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

// Receives the header as a stream of events: unlike a document tree it sees duplicate keys, bounds the depth
// and holds no more than the tensors themselves.
class HeaderParser : public nlohmann::json_sax<json> {
 public:
  SafeTensorsHeader header;
  std::string problem;  // empty while all is well

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not whole");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::Shape && place_ != Place::Offsets) return unexpected("a number");
    if (value > static_cast<uint64_t>(kMaxBytes)) return fail("number {} is out of range", value);
    auto& numbers = place_ == Place::Shape ? tensor_.shape : offsets_;
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::Metadata) {
      header.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::Tensor || key_ != "dtype") return unexpected("a string");
    for (const TypeName& known : kTypes) {
      if (known.name != value) continue;
      tensor_.type = known.type;
      return true;
    }
    return fail("tensor '{}': unknown dtype '{}'", tensor_.name, value);
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (place_ == Place::Top) return keys_.insert(key_).second || fail("'{}' appears twice", key_);
    if (place_ == Place::Metadata) {
      return !header.metadata.contains(key_) || fail("metadata '{}' appears twice", key_);
    }
    constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};
    const auto field = std::find(kFields.begin(), kFields.end(), key_);
    if (field == kFields.end()) return fail("tensor '{}': unknown field '{}'", tensor_.name, key_);
    const unsigned bit = 1u << (field - kFields.begin());
    if ((fields_ & bit) != 0) return fail("tensor '{}': field '{}' appears twice", tensor_.name, key_);
    fields_ |= bit;
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::Start) {
      place_ = Place::Top;
    } else if (place_ == Place::Top && key_ == "__metadata__") {
      place_ = Place::Metadata;
    } else if (place_ == Place::Top) {
      place_ = Place::Tensor;
      tensor_ = {key_, TensorType::F32, {}};
      offsets_.clear();
      fields_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::Tensor) {
      if (fields_ != 7) return fail("tensor '{}': dtype, shape or data_offsets is missing", tensor_.name);
      if (offsets_.size() != 2) return fail("tensor '{}': data_offsets must be two numbers", tensor_.name);
      header.tensors.push_back({std::move(tensor_), offsets_[0], offsets_[1]});
    }
    place_ = place_ == Place::Top ? Place::Start : Place::Top;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::Tensor && key_ == "shape") {
      place_ = Place::Shape;
    } else if (place_ == Place::Tensor && key_ == "data_offsets") {
      place_ = Place::Offsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::Tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail("not valid JSON near byte {}", position);
  }

 private:
  enum class Place { Start, Top, Metadata, Tensor, Shape, Offsets };

  template <class... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    problem = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool unexpected(const char* what) {
    const bool in_tensor = place_ != Place::Start && place_ != Place::Top && place_ != Place::Metadata;
    return in_tensor ? fail("tensor '{}': unexpected {} in '{}'", tensor_.name, what, key_)
                     : fail("unexpected {} at '{}'", what, key_);
  }

  Place place_ = Place::Start;
  std::string key_;
  std::unordered_set<std::string> keys_;
  TensorInfo tensor_;
  std::vector<int64_t> offsets_;
  unsigned fields_ = 0;
};

// As JSON text; what is not UTF-8 is replaced, so that the header is always valid.
std::string quote(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The tensor's size in bytes, or an error when the product does not fit.
Result<int64_t> checked_bytes(const TensorInfo& tensor) {
  int64_t bytes = size_of(tensor.type);
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return error("tensor '{}': shape {} is too large", tensor.name, list(tensor.shape));
    }
  }
  return bytes;
}

Status check_layout(const std::vector<SafeTensorsHeader::Entry>& tensors, int64_t data_bytes) {
  int64_t expected = 0;
  for (const auto& [info, begin, end] : tensors) {
    if (begin > end || end > data_bytes) {
      return error("tensor '{}': data_offsets [{}, {}] lie outside the {} bytes of data", info.name, begin,
                   end, data_bytes);
    }
    if (begin != expected) {
      return error("tensor '{}': data begins at byte {}, but the data before it ends at {}", info.name, begin,
                   expected);
    }
    SLUICE_ASSIGN(const int64_t bytes, checked_bytes(info));
    if (bytes != end - begin) {
      return error("tensor '{}': {} {} takes {} bytes, data_offsets [{}, {}] give {}", info.name,
                   name_of(info.type), list(info.shape), bytes, begin, end, end - begin);
    }
    expected = end;
  }
  if (expected != data_bytes) return error("{} bytes of data belong to no tensor", data_bytes - expected);
  return {};
}

}  // namespace

int64_t size_of(TensorType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}
std::string_view name_of(TensorType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

TensorType tensor_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return TensorType::F32;
    case DType::BF16:
      return TensorType::BF16;
    case DType::F64:
      return TensorType::F64;
    case DType::I32:
      return TensorType::I32;
    case DType::F8E4M3:
      return TensorType::F8_E4M3;
    case DType::I8:
      return TensorType::I8;
    case DType::U8:
    case DType::F8E8M0:
    case DType::F8E5M2:
    case DType::F4E2M1:  // its bytes, two elements each
    case DType::NF4:
      return TensorType::U8;
  }
  return TensorType::U8;
}

int64_t TensorInfo::elements() const {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

Result<SafeTensorsHeader> parse_safetensors_header(std::string_view json_text, int64_t data_bytes) {
  if (json_text.empty() || json_text.front() != '{') return error("the header does not begin with '{{'");
  HeaderParser parser;
  if (!json::sax_parse(json_text, &parser)) return Error{parser.problem};
  auto& tensors = parser.header.tensors;
  sort_by(tensors, [](const auto& tensor) { return std::tie(tensor.begin, tensor.end, tensor.info.name); });
  SLUICE_TRY(check_layout(tensors, data_bytes));
  return std::move(parser.header);
}

std::string format_safetensors_header(const std::vector<TensorInfo>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"__metadata__\":{}", quote(metadata));
  int64_t begin = 0;
  for (const TensorInfo& tensor : tensors) {
    const int64_t end = begin + tensor.bytes();
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                        text.size() > 1 ? "," : "", quote(tensor.name), name_of(tensor.type),
                        list(tensor.shape), begin, end);
    begin = end;
  }
  text += '}';
  constexpr int64_t kLengthBytes = 8, kAlignment = 64;
  text.resize(static_cast<size_t>(align_up(int64_t(text.size()) + kLengthBytes, kAlignment) - kLengthBytes),
              ' ');
  return text;
}

}  // namespace sluice::core

// SPDX-License-Identifier: Apache-2.0
// What config.json says of weights that are codes. Those that are read are numbers once they are loaded
// (checkpoint/packed_tensor.h); others are refused by name.
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "model/families/keys.h"
#include "ops/packed.h"

namespace sluice::core {
namespace {

using nlohmann::json;

constexpr const char* kKey = "quantization_config";
constexpr std::string_view kWayOut =
    "Take the model that it was made of; read are fp8, compressed-tensors in floats of 8 bits, bitsandbytes "
    "in 4 bits, and mxfp4";

std::string text_of(const json& object, const char* key) {
  return says(object, key) && object[key].is_string() ? object[key].get<std::string>() : std::string();
}

Error refused(const std::string& method, std::string_view key, const json& value) {
  return error("model config: {} ({}): {} is {}, which is not read. {}", kKey, method, key, describe(value),
               kWayOut);
}

// Rows and columns of blocks; the scales' format by these.
Result<NumberFormat> blocks_of(const std::string& method, const char* key, const json& sizes) {
  const bool two =
      sizes.is_array() && sizes.size() == 2 && std::all_of(sizes.begin(), sizes.end(), [](const json& size) {
        return size.is_number_unsigned() && std::has_single_bit(size.get<uint64_t>()) &&
               size.get<uint64_t>() <= uint64_t(kMostWidth);
      });
  if (!two) return refused(method, key, sizes);
  return NumberFormat(DType::F8E4M3, std::max(sizes[1].get<uint32_t>(), uint32_t{8}), DType::F32);
}

constexpr NumberFormat kByRow{DType::F8E4M3, NumberFormat::kRow, DType::F32};

Result<std::optional<NumberFormat>> of_fp8(const json& config) {
  if (says(config, "fmt") && text_of(config, "fmt") != "e4m3") return refused("fp8", "fmt", config["fmt"]);
  if (!says(config, "weight_block_size")) return std::optional(kByRow);
  SLUICE_ASSIGN(const NumberFormat format,
                blocks_of("fp8", "weight_block_size", config["weight_block_size"]));
  return std::optional(format);
}

// Each group of layers says how its weights are stored.
Result<std::optional<NumberFormat>> of_compressed_tensors(const json& config) {
  constexpr const char* kMethod = "compressed-tensors";
  if (says(config, "sparsity_config") && !config["sparsity_config"].empty() &&
      text_of(config["sparsity_config"], "format") != "dense")
    return refused(kMethod, "sparsity_config", config["sparsity_config"]);
  std::optional<NumberFormat> out;
  const json groups = says(config, "config_groups") ? config["config_groups"] : json::object();
  for (const auto& [name, group] : groups.items()) {
    const json weights = group.is_object() && says(group, "weights") ? group["weights"] : json();
    const bool floats = weights.is_object() && text_of(weights, "type") == "float" &&
                        says(weights, "num_bits") && weights["num_bits"] == 8;
    if (!floats) return refused(kMethod, fmt::format("config_groups.{}.weights", name), weights);
    const std::string strategy = text_of(weights, "strategy");
    if (strategy == "block") {
      const json sizes = says(weights, "block_structure") ? weights["block_structure"] : json();
      SLUICE_ASSIGN(out, blocks_of(kMethod, "block_structure", sizes));
    } else if (strategy == "channel" || strategy == "tensor") {
      out = kByRow;
    } else {
      return refused(kMethod, "strategy", strategy);
    }
  }
  if (!out) return refused(kMethod, "config_groups", groups);
  return out;
}

Result<std::optional<NumberFormat>> of_bitsandbytes(const json& config) {
  if (!says(config, "load_in_4bit") || config["load_in_4bit"] != true)
    return refused("bitsandbytes", "load_in_4bit",
                   says(config, "load_in_4bit") ? config["load_in_4bit"] : json(false));
  if (text_of(config, "bnb_4bit_quant_type") != "nf4") return std::optional<NumberFormat>();
  return std::optional(kNf4);
}

}  // namespace

Status read_quantization(const json& root, ModelSpec& spec) {
  if (!says(root, kKey) || (root[kKey].is_structured() && root[kKey].empty())) return {};
  const json& config = root[kKey];
  if (!config.is_object())
    return error("model config: {} is {}; an object is needed", kKey, describe(config));
  const std::string method = text_of(config, "quant_method");
  if (method == "fp8") {
    SLUICE_ASSIGN(spec.folder_format, of_fp8(config));
  } else if (method == "compressed-tensors") {
    SLUICE_ASSIGN(spec.folder_format, of_compressed_tensors(config));
  } else if (method == "bitsandbytes") {
    SLUICE_ASSIGN(spec.folder_format, of_bitsandbytes(config));
  } else if (method == "mxfp4") {
    spec.folder_format = kMxfp4;
  } else {
    return error("model config: {} is there ({}): its weights are codes. {}", kKey,
                 method.empty() ? "weights in another form" : method, kWayOut);
  }
  return {};
}

}  // namespace sluice::core

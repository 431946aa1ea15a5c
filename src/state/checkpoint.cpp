// SPDX-License-Identifier: Apache-2.0
#include "state/checkpoint.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "io/file.h"
#include "model/families/families.h"
#include "state/weights.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 3;
constexpr int64_t kMostWhole = int64_t{1} << 53;  // JSON's whole numbers
constexpr int64_t kMostSteps = 1'000'000'000;     // as train.steps
constexpr int64_t kMostInfoBytes = 16 << 20;
constexpr const char* kStep = "sluice.step";  // in the metadata of the files of tensors
constexpr const char *kWeights = "model.safetensors", *kState = "optimizer.safetensors";
// The last line but one of checkpoint.json begins so; its checksum is of all bytes before that line.
constexpr std::string_view kSeal = "  \"checksum\": \"";

std::string text_of(const CheckpointInfo& info) {
  Json manifest = Json::object(), files = Json::object();
  for (const auto& [name, value] : info.manifest) manifest[name] = value;
  for (const auto& [name, sum] : info.files)
    files[name] = {{"bytes", sum.bytes}, {"xxh128", sum.checksum.text()}};
  const Json root = {{"format", kFormat},
                     {"step", info.step},
                     {"weights", info.f32_weights ? "f32" : "own"},
                     {"manifest", manifest},
                     {"files", files}};
  std::string text = root.dump(2);
  text.resize(text.size() - 2);  // the end of the last line, and the brace
  text += ",\n";
  return fmt::format("{}{}{}\"\n}}\n", text, kSeal, checksum_of(text).text());
}

// Whether the text is what text_of() wrote.
bool is_whole(std::string_view text) {
  const size_t seal = text.rfind(kSeal);
  if (seal == std::string_view::npos) return false;
  const auto checksum = Checksum::parse(text.substr(seal + kSeal.size(), 32));
  return checksum && *checksum == checksum_of(text.substr(0, seal));
}

Error damaged(const fs::path& path, std::string_view how) {
  return error(ErrorKind::Io, "{}: it is damaged: {}", path.string(), how);
}

std::optional<int64_t> whole_number(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number_unsigned()) return std::nullopt;
  const auto value = at->get<uint64_t>();
  return value <= uint64_t(kMostWhole) ? std::optional(int64_t(value)) : std::nullopt;
}

std::optional<std::map<std::string, FileSum>> sums_of(const Json& files) {
  std::map<std::string, FileSum> out;
  for (const auto& [name, entry] : files.items()) {
    if (!entry.is_object() || !entry.contains("xxh128") || !entry["xxh128"].is_string()) return std::nullopt;
    const auto checksum = Checksum::parse(entry["xxh128"].get<std::string>());
    const auto bytes = whole_number(entry, "bytes");
    const bool plain = !name.empty() && name.front() != '.' && fs::path(name).filename() == name;
    if (!checksum || !bytes || !plain) return std::nullopt;
    out[name] = {*bytes, *checksum};
  }
  return out;
}

Status check_sum(const CheckpointInfo& info, const fs::path& path, const FileSum& found) {
  const FileSum& saved = info.files.at(path.filename());
  if (saved.bytes != found.bytes)
    return damaged(path, fmt::format("it has {} bytes, {} were saved", found.bytes, saved.bytes));
  if (!(saved.checksum == found.checksum))
    return damaged(path, fmt::format("its checksum is {}, what was saved has {}", found.checksum.text(),
                                     saved.checksum.text()));
  return {};
}

Status check_step(const fs::path& path, const SafeTensorsHeader& header, int64_t step) {
  const auto found = header.metadata.find(kStep);
  const std::string of = found == header.metadata.end() ? "none" : found->second;
  if (of == fmt::format("{}", step)) return {};
  return error("{}: it is of step {}, checkpoint.json beside it of step {}: these are no checkpoint",
               path.string(), of, step);
}

// Reads a file of tensors. `needed` are the names of those that must be there; `check` and `write` get those
// that are.
Status load_file(const CheckpointInfo& info, const fs::path& path, std::set<std::string_view> needed,
                 const std::function<Status(const TensorInfo&)>& check,
                 const std::function<Status(const TensorInfo&, int64_t, std::span<const std::byte>)>& write) {
  std::error_code unreadable;
  const auto size = int64_t(fs::file_size(path, unreadable));
  if (!unreadable && size != info.files.at(path.filename()).bytes) return check_sum(info, path, {size, {}});
  std::vector<TensorInfo> tensors;
  const auto begin = [&](const SafeTensorsHeader& header) -> Status {
    SLUICE_TRY(check_step(path, header, info.step));
    for (const auto& entry : header.tensors) {
      tensors.push_back(entry.info);
      if (needed.erase(entry.info.name) > 0) {
        SLUICE_TRY(check(entry.info));
      } else {
        return error("{}: tensor {} is none of this model's", path.string(), entry.info.name);
      }
    }
    if (needed.empty()) return {};
    return error(ErrorKind::NotFound, "{}: no tensor '{}' among its {}", path.string(), *needed.begin(),
                 tensors.size());
  };
  // Damage is told apart from a bad state: it is only known at the end.
  Status first;
  const auto sum = stream_tensors(
      path, begin, [&](size_t tensor, int64_t offset, std::span<const std::byte> bytes) -> Status {
        if (first.ok()) first = write(tensors[tensor], offset, bytes);
        return {};
      });
  if (!sum.ok()) return sum.error();
  SLUICE_TRY(check_sum(info, path, *sum));
  if (!first.ok()) return error_at(path.string(), first.error());
  return {};
}

Status load_weights_file(const CheckpointInfo& info, const Model& model, const fs::path& path,
                         Executor& executor) {
  const auto places = weight_places(model);
  std::set<std::string_view> needed;
  for (const auto& [name, place] : places) needed.insert(name);
  return load_file(
      info, path, std::move(needed),
      [&](const TensorInfo& tensor) {
        return check_weight(model, places.find(tensor.name)->second, tensor, path);
      },
      [&](const TensorInfo& tensor, int64_t offset, std::span<const std::byte> bytes) {
        return write_weight(model, places.find(tensor.name)->second, tensor, offset, bytes, executor);
      });
}

Status load_state_file(const CheckpointInfo& info, const CheckpointLayout& layout, const fs::path& path,
                       Executor& executor) {
  std::map<std::string_view, const StoredTensor*> stored;
  std::set<std::string_view> needed;
  for (const StoredTensor& tensor : layout.state) {
    stored[tensor.info.name] = &tensor;
    needed.insert(tensor.info.name);
  }
  return load_file(
      info, path, std::move(needed),
      [&](const TensorInfo& tensor) -> Status {
        const TensorInfo& own = stored[tensor.name]->info;
        if (tensor.type == own.type && tensor.bytes() == own.bytes()) return {};
        return error("{}: {} has {} bytes of {}, this run needs {} of {}", path.string(), tensor.name,
                     tensor.bytes(), name_of(tensor.type), own.bytes(), name_of(own.type));
      },
      [&](const TensorInfo& tensor, int64_t offset, std::span<const std::byte> bytes) -> Status {
        SLUICE_TRY(check_finite(tensor, offset / size_of(tensor.type), bytes));
        return executor.write(stored[tensor.name]->parts[0].object, bytes, offset);
      });
}

// Of the files that hold no tensors.
Status check_others(const CheckpointInfo& info, const fs::path& dir) {
  for (const auto& [name, saved] : info.files) {
    if (name == kWeights || name == kState) continue;
    const fs::path path = dir / name;
    SLUICE_ASSIGN(const std::string text, read_file(path, kMostInfoBytes));
    SLUICE_TRY(check_sum(info, path, {int64_t(text.size()), checksum_of(text)}));
  }
  return {};
}

}  // namespace

Status write_checkpoint(const ModelSpec& spec, const CheckpointLayout& layout, CheckpointInfo info,
                        const fs::path& dir, const PartReader& reader) {
  const std::string step = fmt::format("{}", info.step), config = to_json(spec);
  SLUICE_ASSIGN(info.files[kWeights],
                write_tensors(layout.weights, dir / kWeights, {{"format", "pt"}, {kStep, step}}, reader));
  SLUICE_ASSIGN(info.files[kState], write_tensors(layout.state, dir / kState, {{kStep, step}}, reader));
  SLUICE_TRY(write_file(dir / "config.json", config));
  info.files["config.json"] = {int64_t(config.size()), checksum_of(config)};
  return write_file(dir / "checkpoint.json", text_of(info));
}

Status CheckpointCopy::write(const fs::path& dir) {
  return write_checkpoint(spec, layout, info, dir, state.reader());
}

Result<CheckpointInfo> parse_checkpoint_info(std::string_view text, const fs::path& path) {
  const auto root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return damaged(path, "it is not an object of JSON");
  if (!root.contains("format") || root["format"] != kFormat) {
    return error(
        "{}: this version goes on from checkpoints of format {}; to start from its weights, set "
        "model.weights = {}",
        path.string(), kFormat, (path.parent_path() / kWeights).string());
  }
  if (!is_whole(text)) return damaged(path, "its checksum is not that of its text");
  CheckpointInfo info;
  const auto step = whole_number(root, "step");
  const bool has_all = root.contains("manifest") && root["manifest"].is_object() && root.contains("files") &&
                       root["files"].is_object() && root.contains("weights");
  const auto files = has_all ? sums_of(root["files"]) : std::nullopt;
  if (!step || !files || !files->contains(kWeights) || !files->contains(kState))
    return damaged(path, "step, weights, manifest or files are not as docs/checkpoints.md says");
  if (*step > kMostSteps)
    return error("{}: step = {}: at most {} are allowed", path.string(), *step, kMostSteps);
  info.step = *step;
  info.files = *files;
  info.f32_weights = root["weights"] == "f32";
  for (const auto& [name, value] : root["manifest"].items()) {
    if (value.is_structured()) return damaged(path, "its manifest is no list of plain values");
    info.manifest.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return info;
}

Result<CheckpointInfo> read_checkpoint_info(const fs::path& dir) {
  const fs::path path = dir / "checkpoint.json";
  SLUICE_ASSIGN(const std::string text, read_file(path, kMostInfoBytes));
  return parse_checkpoint_info(text, path);
}

Result<CheckpointInfo> load_checkpoint(const Model& model, const Manifest& manifest, const fs::path& dir,
                                       Executor& executor) {
  SLUICE_ASSIGN(CheckpointInfo info, read_checkpoint_info(dir));
  if (const auto changed = differences(info.manifest, manifest); !changed.empty()) {
    return error(
        "run.resume = {}: this run would not go on as the one that was saved: {}. Set these back, or start "
        "from its weights: model.weights = {}",
        dir.string(), fmt::join(changed, "; "), (dir / kWeights).string());
  }
  const CheckpointLayout layout = layout_of(model, info.f32_weights);
  SLUICE_TRY(check_others(info, dir));
  SLUICE_TRY(load_weights_file(info, model, dir / kWeights, executor));
  SLUICE_TRY(load_state_file(info, layout, dir / kState, executor));
  return info;
}

}  // namespace sluice::core

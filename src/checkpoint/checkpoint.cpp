// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/convert.h"
#include "checkpoint/weights.h"
#include "io/file.h"
#include "io/model_folder.h"
#include "io/pieces.h"
#include "io/shards.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 6;  // of adapters, beside a base that lies elsewhere
constexpr int kFormatOfParts = 5;
constexpr int kFormatOfOneState = 4;  // what those are of that older programs go on from
constexpr int kOldestFormat = 3;      // weights are one file, and no other files of the model are there
constexpr int64_t kMostWhole = int64_t{1} << 53;  // JSON's whole numbers
constexpr int64_t kMostSteps = 1'000'000'000;     // as train.steps
constexpr int64_t kMostInfoBytes = 16 << 20;
constexpr const char* kStep = "sluice.step";  // in the metadata of the files of tensors
// The last line but one of checkpoint.json begins so; its checksum is of all bytes before that line.
constexpr std::string_view kSeal = "  \"checksum\": \"";

Json json_of(const HeldoutRecord& r) {
  Json rows = Json::array();
  for (const RowLoss& row : r.best_rows) rows.push_back({row.loss, row.targets, row.hits});
  return {{"of", r.of},
          {"every", r.every},
          {"of_steps", r.of_steps},
          {"last_step", r.last_step},
          {"best_step", r.best_step},
          {"best_loss", r.best_loss},
          {"since", r.since},
          {"best_rows", rows}};
}

std::string to_text(const CheckpointInfo& info) {
  Json manifest = Json::object(), files = Json::object();
  for (const auto& [name, value] : info.manifest) manifest[name] = value;
  for (const auto& [name, sum] : info.files)
    files[name] = {{"bytes", sum.bytes}, {"xxh128", sum.checksum.to_text()}};
  const bool one_state =
      std::ranges::all_of(info.state_files(), [](const auto& f) { return f == kStateName; });
  const int format = info.files.contains(std::string(kAdapterName)) ? kFormat
                     : one_state                                    ? kFormatOfOneState
                                                                    : kFormatOfParts;
  Json root = {{"format", format},        {"step", info.step},
               {"updates", info.updates}, {"weights", info.f32_weights ? "f32" : "own"},
               {"manifest", manifest},    {"files", files}};
  if (info.heldout != HeldoutRecord()) root["heldout"] = json_of(info.heldout);
  std::string text = root.dump(2);
  text.resize(text.size() - 2);  // the end of the last line, and the brace
  text += ",\n";
  return fmt::format("{}{}{}\"\n}}\n", text, kSeal, checksum_of(text).to_text());
}

// Whether the text is what to_text() wrote.
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

bool has_weights(const FileSums& files) {
  return std::any_of(files.begin(), files.end(),
                     [](const auto& file) { return is_weights_file(file.first); });
}

// None: it is not what json_of() made.
std::optional<HeldoutRecord> heldout_of(const Json& json) {
  HeldoutRecord r;
  const auto whole = [&](const char* key, int64_t& value) {
    const auto at = json.find(key);
    if (at == json.end() || !at->is_number_integer() || at->get<int64_t>() < -1) return false;
    value = at->get<int64_t>();
    return value <= kMostWhole;
  };
  const auto row_of = [&](const Json& row) {
    if (!row.is_array() || row.size() != 3 || !row[0].is_number() || !row[1].is_number_integer() ||
        !row[2].is_number_integer())
      return false;
    r.best_rows.push_back({row[0].get<double>(), row[1].get<int64_t>(), row[2].get<int64_t>()});
    return true;
  };
  const bool good = json.is_object() && whole("every", r.every) && whole("of_steps", r.of_steps) &&
                    whole("last_step", r.last_step) && whole("best_step", r.best_step) &&
                    whole("since", r.since) && json.contains("of") && json["of"].is_string() &&
                    json.contains("best_loss") && json["best_loss"].is_number() &&
                    json.contains("best_rows") && json["best_rows"].is_array() &&
                    std::all_of(json["best_rows"].begin(), json["best_rows"].end(), row_of);
  if (!good) return std::nullopt;
  r.of = json["of"].get<std::string>();
  r.best_loss = json["best_loss"].get<double>();
  return r;
}

Status check_sum(const CheckpointInfo& info, const fs::path& path, const FileSum& found) {
  const FileSum& saved = info.files.at(path.filename());
  if (saved.bytes != found.bytes)
    return damaged(path, fmt::format("it has {} bytes, {} were saved", found.bytes, saved.bytes));
  if (!(saved.checksum == found.checksum))
    return damaged(path, "its bytes are not those that were saved, as their checksum says");
  return {};
}

Status check_step(const fs::path& path, const SafeTensorsHeader& header, int64_t step) {
  const auto found = header.metadata.find(kStep);
  const std::string of = found == header.metadata.end() ? "none" : found->second;
  if (of == fmt::format("{}", step)) return {};
  return error("{}: it is of step {}, checkpoint.json beside it of step {}: these are no checkpoint",
               path.string(), of, step);
}

// Reads a file of tensors. `needed` are the names of those that must be there, or in files that follow; what
// is found is taken out of them, and `check` and `write` get it. Others are an error, or passed over.
Status load_file(const CheckpointInfo& info, const fs::path& path, std::set<std::string_view>& needed,
                 bool pass_over, const std::function<Status(const TensorInfo&)>& check,
                 const std::function<Status(const TensorInfo&, int64_t, std::span<const std::byte>)>& write) {
  std::error_code unreadable;
  const auto size = int64_t(fs::file_size(path, unreadable));
  if (!unreadable && size != info.files.at(path.filename()).bytes) return check_sum(info, path, {size, {}});
  std::vector<TensorInfo> tensors;
  std::vector<bool> wanted;
  const auto begin = [&](const SafeTensorsHeader& header) -> Status {
    SLUICE_TRY(check_step(path, header, info.step));
    for (const auto& entry : header.tensors) {
      tensors.push_back(entry.info);
      tensors.back().name = own_name(entry.info.name);
      wanted.push_back(needed.erase(tensors.back().name) > 0);
      if (wanted.back()) {
        SLUICE_TRY(check(tensors.back()));
      } else if (!pass_over) {
        return error("{}: tensor {} is none of this model's", path.string(), entry.info.name);
      }
    }
    return {};
  };
  // Damage is told apart from a bad state: it is only known at the end.
  Status first;
  const auto sum = stream_tensors(
      path, begin, [&](size_t tensor, int64_t offset, std::span<const std::byte> bytes) -> Status {
        if (first.ok() && wanted[tensor]) first = write(tensors[tensor], offset, bytes);
        return {};
      });
  if (!sum.ok()) return sum.error();
  SLUICE_TRY(check_sum(info, path, *sum));
  if (!first.ok()) return error_at(path.string(), first.error());
  return {};
}

Status check_all_found(const std::set<std::string_view>& needed, const fs::path& path) {
  if (needed.empty()) return {};
  return error(ErrorKind::NotFound, "{}: no tensor '{}'; {} of this model are missing", path.string(),
               *needed.begin(), needed.size());
}

// Writes pieces of a tensor that follow each other; of a packed weight whole rows of them. `rest`: what is
// left of the last row, for the next piece.
Status write_rows(const BuiltProgram& model, std::span<const WeightPlace> places, const TensorInfo& tensor,
                  int64_t offset, std::span<const std::byte> bytes, std::vector<std::byte>& rest,
                  Executor& executor) {
  const WeightPlace& first = places.front();
  if (!is_packed(model.weights[first.weight]))
    return write_weight(model, places, tensor, offset, bytes, executor);
  const int64_t begin = offset - int64_t(rest.size());
  rest.insert(rest.end(), bytes.begin(), bytes.end());
  const auto row = size_t(first.source->cols * size_of(tensor.type));
  const auto whole = std::span(rest).first(rest.size() / row * row);
  SLUICE_TRY(write_weight(model, places, tensor, begin, whole, executor));
  rest.erase(rest.begin(), rest.begin() + int64_t(whole.size()));
  return {};
}

Status load_weights_files(const CheckpointInfo& info, const BuiltProgram& model, const fs::path& dir,
                          Executor& executor) {
  const auto places = weight_places(model, saved_of(model.weights));
  std::set<std::string_view> needed;
  for (const auto& [name, of_tensor] : places) needed.insert(name);
  std::vector<std::byte> rows;
  for (const auto& [name, sum] : info.files) {
    if (!is_weights_file(name)) continue;
    const fs::path path = dir / name;
    SLUICE_TRY(load_file(
        info, path, needed, false,
        [&](const TensorInfo& tensor) {
          return check_weight(model, places.find(tensor.name)->second.front(), tensor, path);
        },
        [&](const TensorInfo& tensor, int64_t offset, std::span<const std::byte> bytes) {
          const std::vector<WeightPlace>& of_tensor = places.find(tensor.name)->second;
          return write_rows(model, of_tensor, tensor, offset, bytes, rows, executor);
        }));
  }
  return check_all_found(needed, dir);
}

// State of newly trained weights: zeros. Its master weights came with the weights.
Status begin_state(const BuiltProgram& model, const std::set<std::string_view>& names, Executor& executor) {
  for (const ParamObjects& objects : model.params) {
    for (const ParamObjects::Part& part : objects.parts) {
      for (const ObjectId id : part.state) {
        if (names.contains(model.program.object(id).name)) SLUICE_TRY(executor.clear(id));
      }
    }
  }
  return {};
}

// The parameter that masters of 8 bits are beside, from an element on.
struct Beside {
  ObjectId parameter;
  int64_t first;
};
// By the masters' object.
std::map<uint32_t, Beside> parameters_of_masters(const BuiltProgram& model) {
  std::map<uint32_t, Beside> out;
  for (const ParamObjects& objects : model.params) {
    for (const ParamObjects::Part& part : objects.parts) {
      if (has_residuals(model.program, part)) out[part.master.value] = {objects.param, part.first};
    }
  }
  return out;
}

// A zero or a large weight with a byte beside it may be no finite number.
Status check_masters(const Beside& beside, const TensorInfo& masters, int64_t first,
                     std::span<const std::byte> bytes, const Executor& executor) {
  std::vector<float> values;
  SLUICE_TRY(read_joined(executor, beside.parameter, beside.first + first, bytes, values));
  const TensorInfo joined{masters.name, TensorType::F32, masters.shape};
  return check_values(joined, false, first, std::as_bytes(std::span(values)));
}

Status load_state_files(const CheckpointInfo& info, const BuiltProgram& model, const CheckpointLayout& layout,
                        const fs::path& dir, Executor& executor, const OtherState& other) {
  std::vector<fs::path> paths;
  for (const std::string& name : info.state_files()) paths.push_back(dir / name);
  const fs::path& all = paths.size() == 1 ? paths.front() : dir;
  const bool sharded =
      std::ranges::any_of(model.params, [](const ParamObjects& p) { return !p.owners.empty(); });
  if (other.formats) {
    if (sharded)
      return error("{}: its state is of other number formats, which is rounded with run.shard_state = false",
                   all.string());
    for (const fs::path& path : paths) SLUICE_TRY(check_file(info, path));
    return load_state_in_other_formats(model, paths, executor, other.trained);
  }
  const std::map<uint32_t, Beside> beside = parameters_of_masters(model);
  std::map<std::string_view, const StoredTensor*> stored;
  std::set<std::string_view> needed;
  for (const StoredTensor& tensor : layout.state) {
    stored[tensor.info.name] = &tensor;
    needed.insert(tensor.info.name);
  }
  const auto check = [&](const TensorInfo& tensor) -> Status {
    const TensorInfo& own = stored[tensor.name]->info;
    if (tensor.type == own.type && tensor.bytes() == own.bytes()) return {};
    return error("{}: {} has {} bytes of {}, this run needs {} of {}", all.string(), tensor.name,
                 tensor.bytes(), name_of(tensor.type), own.bytes(), name_of(own.type));
  };
  const auto write = [&](const TensorInfo& tensor, int64_t offset,
                         std::span<const std::byte> bytes) -> Status {
    SLUICE_TRY(
        check_values(tensor, stored[tensor.name]->never_negative, offset / size_of(tensor.type), bytes));
    const StoredPart& part = stored[tensor.name]->parts[0];
    if (const auto it = beside.find(part.object.value); it != beside.end())
      SLUICE_TRY(check_masters(it->second, tensor, offset, bytes, executor));
    return executor.write(part.object, bytes, part.offset + offset);
  };
  // Passes over parts of other processes.
  for (const fs::path& path : paths)
    SLUICE_TRY(load_file(info, path, needed, other.trained || sharded, check, write));
  if (other.trained) return begin_state(model, needed, executor);
  return check_all_found(needed, all);
}

// Checks that need nothing read into the model.
Status check_before(const CheckpointInfo& info, const fs::path& dir) {
  SLUICE_ASSIGN([[maybe_unused]] const CheckpointInfo looked, look_at_checkpoint(dir));
  for (const auto& [name, sum] : info.files) {
    if (!is_weights_file(name) && !is_state_file(name)) SLUICE_TRY(check_file(info, dir / name));
  }
  return {};
}

Status load_files(const CheckpointInfo& info, const BuiltProgram& model, const fs::path& dir,
                  Executor& executor, const OtherState& other) {
  const CheckpointLayout layout = layout_of(model, info.f32_weights, saved_of(model.weights));
  SLUICE_TRY(load_weights_files(info, model, dir, executor));
  return load_state_files(info, model, layout, dir, executor, other);
}

}  // namespace

Status check_file(const CheckpointInfo& info, const fs::path& path, const PieceProgress& progress) {
  const FileSum& saved = info.files.at(path.filename());
  std::error_code unreadable;
  const auto size = int64_t(fs::file_size(path, unreadable));
  if (unreadable) return file_error("read", path, unreadable.value());
  if (size != saved.bytes) return check_sum(info, path, {size, {}});
  Checksummer checksum;
  SLUICE_TRY(read_pieces(path, 0, size, [&](std::string_view piece) -> Status {
    checksum.add(piece);
    return progress ? progress(int64_t(piece.size())) : Status();
  }));
  return check_sum(info, path, {size, checksum.value()});
}

Result<CheckpointInfo> look_at_checkpoint(const fs::path& dir) {
  SLUICE_ASSIGN(CheckpointInfo info, read_checkpoint_info(dir));
  for (const auto& [name, sum] : info.files) {
    std::error_code unreadable;
    const auto bytes = int64_t(fs::file_size(dir / name, unreadable));
    if (unreadable) return file_error("read", dir / name, unreadable.value());
    if (bytes != sum.bytes) return check_sum(info, dir / name, {bytes, {}}).error();
  }
  return info;
}

Status check_whole(const fs::path& dir) {
  SLUICE_ASSIGN(const CheckpointInfo info, look_at_checkpoint(dir));
  for (const auto& [name, sum] : info.files) SLUICE_TRY(check_file(info, dir / name));
  return {};
}

std::string state_name(int process, int processes) {
  return fmt::format("optimizer-{:05}-of-{:05}.safetensors", process + 1, processes);
}

bool is_state_file(std::string_view name) {
  return name == kStateName || (name.starts_with("optimizer-") && name.ends_with(".safetensors"));
}

std::vector<std::string> CheckpointInfo::state_files() const {
  std::vector<std::string> out;
  for (const auto& [name, sum] : files) {
    if (is_state_file(name)) out.push_back(name);
  }
  return out;
}

Result<FileSum> write_state_file(std::span<const StoredTensor> tensors, const fs::path& path, int64_t step,
                                 const PartReader& reader) {
  return write_tensors(tensors, path, {{kStep, fmt::format("{}", step)}}, reader);
}

Status write_checkpoint(const CheckpointContent& content, const fs::path& dir, const PartReader& reader,
                        const StateWriter& write_state) {
  const CheckpointLayout& layout = content.layout;
  CheckpointInfo info = content.info;
  Metadata metadata = content.metadata;
  metadata[kStep] = fmt::format("{}", info.step);
  const std::string state(kStateName);
  SLUICE_ASSIGN(info.files, write_weights(layout, dir, metadata, reader));
  if (content.has_state && write_state) {
    SLUICE_ASSIGN(FileSums states, write_state(dir));
    info.files.merge(states);
  } else if (content.has_state) {
    SLUICE_ASSIGN(info.files[state], write_state_file(layout.state, dir / state, info.step, reader));
  }
  SLUICE_ASSIGN(FileSums others, content.files->copy_to(dir));
  info.files.merge(others);
  const std::string config(layout.held == Held::Adapter ? kAdapterConfigName : kConfigName);
  SLUICE_TRY(write_file(dir / config, content.config));
  info.files[config] = {int64_t(content.config.size()), checksum_of(content.config)};
  return write_file(dir / "checkpoint.json", to_text(info));
}

CheckpointContent weights_only(CheckpointContent content) {
  content.layout = weights_only(std::move(content.layout));
  content.has_state = false;
  return content;
}

Status link_weights(const fs::path& checkpoint, const fs::path& dir) {
  SLUICE_ASSIGN(CheckpointInfo info, read_checkpoint_info(checkpoint));
  std::erase_if(info.files, [](const auto& file) { return is_state_file(file.first); });
  for (const auto& [name, sum] : info.files) {
    std::error_code code;
    fs::create_hard_link(checkpoint / name, dir / name, code);
    if (code) return file_error("link", dir / name, code.value());
  }
  return write_file(dir / "checkpoint.json", to_text(info));
}

Status set_own_loss(const fs::path& dir, double loss) {
  SLUICE_ASSIGN(CheckpointInfo info, read_checkpoint_info(dir));
  if (info.heldout.best_step == info.step) return {};
  info.heldout.best_step = info.step;
  info.heldout.best_loss = loss;
  info.heldout.since = 0;
  info.heldout.best_rows.clear();
  return write_file(dir / "checkpoint.json", to_text(info));
}

Status check_has_state(const CheckpointInfo& info, const fs::path& dir) {
  if (info.has_state()) return {};
  return error(
      "{}: it has the weights of step {} and no optimizer state, so that no run goes on from it; to start "
      "anew from "
      "its weights: model.weights = {}",
      dir.string(), info.step, dir.string());
}

Status CheckpointCopy::write(const fs::path& dir) {
  return write_checkpoint(content, dir, state.reader());
}

Result<CheckpointInfo> parse_checkpoint_info(std::string_view text, const fs::path& path) {
  const auto root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return damaged(path, "it is not an object of JSON");
  const auto format = whole_number(root, "format");
  if (!format || *format < kOldestFormat || *format > kFormat) {
    return error(
        "{}: this version goes on from checkpoints of formats {} to {}; to start from its weights, set "
        "model.weights = {}",
        path.string(), kOldestFormat, kFormat, path.parent_path().string());
  }
  if (!is_whole(text)) return damaged(path, "its checksum is not that of its text");
  CheckpointInfo info;
  const auto step = whole_number(root, "step");
  const bool has_all = root.contains("manifest") && root["manifest"].is_object() && root.contains("files") &&
                       root["files"].is_object() && root.contains("weights");
  const auto files = has_all ? sums_of(root["files"]) : std::nullopt;
  if (!step || !files || !has_weights(*files))
    return damaged(path, "step, weights, manifest or files are not as docs/checkpoints.md says");
  if (root.contains("heldout")) {
    auto heldout = heldout_of(root["heldout"]);
    if (!heldout) return damaged(path, "what it says of held-out losses is not as docs/checkpoints.md says");
    info.heldout = std::move(*heldout);
  }
  if (*step > kMostSteps)
    return error("{}: step = {}: at most {} are allowed", path.string(), *step, kMostSteps);
  info.step = info.updates = *step;
  if (root.contains("updates")) {
    const auto updates = whole_number(root, "updates");
    if (!updates || *updates > *step) {
      return damaged(path, fmt::format("updates is {}, and step {}; it is a whole number from 0 to step",
                                       root["updates"].dump(), *step));
    }
    info.updates = *updates;
  }
  info.files = *files;
  info.f32_weights = root["weights"] == "f32";
  if (!info.f32_weights && root["weights"] != "own")
    return damaged(path, "its weights are neither \"own\" nor \"f32\"");
  for (const auto& [name, value] : root["manifest"].items()) {
    if (value.is_structured()) return damaged(path, "its manifest is no list of plain values");
    info.manifest.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return info;
}

Result<CheckpointInfo> read_checkpoint_info(const fs::path& dir) {
  const fs::path path = dir / "checkpoint.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::is_directory(dir / "checkpoints", ignored))
    return error("{}: a run's directory; name one of its checkpoints, such as {}", dir.string(),
                 (dir / "checkpoints/latest").string());
  SLUICE_ASSIGN(const std::string text, read_file(path, kMostInfoBytes));
  return parse_checkpoint_info(text, path);
}

Result<CheckpointInfo> load_checkpoint(const BuiltProgram& model, const Manifest& manifest,
                                       const fs::path& dir, Executor& executor, const OtherState& other) {
  SLUICE_ASSIGN(CheckpointInfo info, read_checkpoint_info(dir));
  SLUICE_TRY(check_has_state(info, dir));
  if (const auto changed = differences(info.manifest, manifest); !changed.empty()) {
    return error(
        "run.resume = {}: it cannot be resumed with other settings than it was saved with: {}. Set them "
        "back, or start a new run from its weights: model.weights = {}",
        dir.string(), fmt::join(changed, "; "), dir.string());
  }
  const Status sound = check_before(info, dir);
  const Status loaded = sound.ok() ? load_files(info, model, dir, executor, other) : sound;
  if (loaded.ok()) return info;
  Error damage = loaded.error();
  damage.details.emplace_back("damaged", dir.string());
  if (sound.ok()) damage.details.emplace_back("state", "lost");
  return damage;
}

}  // namespace sluice::core

// SPDX-License-Identifier: Apache-2.0
#include "state/checkpoint.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/safetensors.h"
#include "model/families/families.h"
#include "state/weights.h"

namespace sluice::core {
namespace {

constexpr int kFormat = 2;
constexpr const char* kStep = "sluice.step";  // in the metadata of the files of tensors

// The optimizer's state of every weight, part by part.
std::vector<ObjectId> state_objects(const Model& model) {
  std::vector<ObjectId> out;
  for (const ParamObjects& objects : model.params) {
    for (const ParamObjects::Part& part : objects.parts) {
      out.insert(out.end(), part.state.begin(), part.state.end());
      if (part.master.valid()) out.push_back(part.master);
    }
  }
  return out;
}

Status save_state(const Model& model, const std::filesystem::path& path, const Executor& executor,
                  const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  for (const ObjectId id : state_objects(model)) {
    const Object& o = model.program.object(id);
    infos.push_back({o.name, tensor_type(o.dtype), {o.bytes / size_of(o.dtype)}});
  }
  SLUICE_ASSIGN(SafeTensorsWriter writer, SafeTensorsWriter::create(path, infos, metadata));
  for (const ObjectId id : state_objects(model)) {
    const Object& o = model.program.object(id);
    SLUICE_TRY(copy_out(executor, id, 0, o.bytes, o.name, writer));
  }
  return writer.commit();
}

Status load_state(const Model& model, const std::filesystem::path& path, Executor& executor) {
  SLUICE_ASSIGN(const TensorFiles files, TensorFiles::open(path));
  for (const ObjectId id : state_objects(model)) {
    const Object& o = model.program.object(id);
    SLUICE_ASSIGN(const SafeTensor* tensor, files.get(o.name));
    if (int64_t(tensor->bytes.size()) != o.bytes) {
      return error("{}: {} has {} bytes, this run needs {}", path.string(), o.name, tensor->bytes.size(),
                   o.bytes);
    }
    SLUICE_TRY(executor.write(id, tensor->bytes));
  }
  return {};
}

Status check_step(const std::filesystem::path& path, int64_t step) {
  SLUICE_ASSIGN(const SafeTensorsFile file, SafeTensorsFile::open(path));
  const auto found = file.metadata().find(kStep);
  const std::string of = found == file.metadata().end() ? "none" : found->second;
  if (of == fmt::format("{}", step)) return {};
  return error("{}: it is of step {}, checkpoint.json beside it of step {}: these are no checkpoint",
               path.string(), of, step);
}

}  // namespace

Status write_checkpoint(const ModelSpec& spec, const Model& model, const CheckpointInfo& info,
                        const std::filesystem::path& to, const Executor& executor) {
  const std::map<std::string, std::string> metadata{{kStep, fmt::format("{}", info.step)}};
  SLUICE_TRY(save_weights(model, to / "model.safetensors", executor, metadata));
  SLUICE_TRY(save_state(model, to / "optimizer.safetensors", executor, metadata));
  SLUICE_TRY(write_file(to / "config.json", to_json(spec)));
  nlohmann::ordered_json manifest = nlohmann::ordered_json::object();
  for (const auto& [name, value] : info.manifest) manifest[name] = value;
  const nlohmann::ordered_json root = {{"format", kFormat}, {"step", info.step}, {"manifest", manifest}};
  return write_file(to / "checkpoint.json", root.dump(2) + "\n");
}

Result<CheckpointInfo> read_checkpoint_info(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "checkpoint.json";
  SLUICE_ASSIGN(const std::string text, read_file(path));
  const auto root = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!root.is_object() || !root.contains("step") || !root["step"].is_number_integer()) {
    return error("{}: not a checkpoint: no step", path.string());
  }
  if (root.value("format", 1) != kFormat || !root.contains("manifest") || !root["manifest"].is_object()) {
    return error(
        "{}: this version goes on from checkpoints of format {}; to start from its weights, set "
        "model.weights = {}",
        path.string(), kFormat, (dir / "model.safetensors").string());
  }
  CheckpointInfo info;
  info.step = root["step"].get<int64_t>();
  for (const auto& [name, value] : root["manifest"].items()) {
    info.manifest.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return info;
}

Result<CheckpointInfo> load_checkpoint(const Model& model, const Manifest& manifest,
                                       const std::filesystem::path& dir, Executor& executor) {
  SLUICE_ASSIGN(CheckpointInfo info, read_checkpoint_info(dir));
  if (const auto changed = differences(info.manifest, manifest); !changed.empty()) {
    return error(
        "run.resume = {}: this run would not go on as the one that was saved: {}. Set these back, or start "
        "from its weights: model.weights = {}",
        dir.string(), fmt::join(changed, "; "), (dir / "model.safetensors").string());
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    SLUICE_TRY(check_step(dir / file, info.step));
  SLUICE_TRY(load_weights(model, dir / "model.safetensors", executor));
  SLUICE_TRY(load_state(model, dir / "optimizer.safetensors", executor));
  return info;
}

}  // namespace sluice::core

#include "state/checkpoint.h"

#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/safetensors.h"
#include "model/families/families.h"
#include "state/weights.h"

namespace sluice {
namespace {

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

}  // namespace

Status save_checkpoint(const ModelSpec& spec, const Model& model, const CheckpointInfo& info,
                       const std::filesystem::path& dir, const Executor& executor) {
  const Program& program = model.program;
  SLUICE_TRY(make_directories(dir));
  SLUICE_TRY(save_weights(model, dir / "model.safetensors", executor));
  std::vector<TensorInfo> infos;
  for (const ObjectId id : state_objects(model)) {
    const Object& o = program.object(id);
    infos.push_back({o.name, tensor_type(o.dtype), {o.bytes / size_of(o.dtype)}});
  }
  SLUICE_ASSIGN(SafeTensorsWriter writer, SafeTensorsWriter::create(dir / "optimizer.safetensors", infos));
  for (const ObjectId id : state_objects(model)) {
    const Object& o = program.object(id);
    SLUICE_TRY(copy_out(executor, id, 0, o.bytes, o.name, writer));
  }
  SLUICE_TRY(writer.commit());
  SLUICE_TRY(write_file(dir / "config.json", to_json(spec)));
  const StepShape& s = info.shape;
  const nlohmann::json root = {{"step", info.step},
                               {"shape",
                                {{"seq_len", s.seq_len},
                                 {"chunk_tokens", s.chunk_tokens},
                                 {"chunks_per_round", s.chunks_per_round},
                                 {"rounds", s.rounds},
                                 {"first_chunks", s.first_chunks},
                                 {"short_rounds", s.short_rounds},
                                 {"head_tokens", s.head_tokens}}}};
  return write_file(dir / "checkpoint.json", root.dump(2));
}

Result<CheckpointInfo> load_checkpoint(const Model& model, const std::filesystem::path& dir,
                                       Executor& executor) {
  SLUICE_ASSIGN(const std::string text, read_file(dir / "checkpoint.json"));
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object() || !root.contains("step") || !root["step"].is_number_integer()) {
    return error("{}: not a checkpoint: no step", (dir / "checkpoint.json").string());
  }
  SLUICE_TRY(load_weights(model, dir / "model.safetensors", executor));
  SLUICE_ASSIGN(const TensorFiles files, TensorFiles::open(dir / "optimizer.safetensors"));
  for (const ObjectId id : state_objects(model)) {
    const Object& o = model.program.object(id);
    SLUICE_ASSIGN(const SafeTensor* tensor, files.get(o.name));
    if (int64_t(tensor->bytes.size()) != o.bytes) {
      return error("{}: {} has {} bytes, this run needs {}: it was saved with other number formats",
                   files.path().string(), o.name, tensor->bytes.size(), o.bytes);
    }
    SLUICE_TRY(executor.write(id, tensor->bytes));
  }
  CheckpointInfo info;
  info.step = root["step"].get<int64_t>();
  if (const auto shape = root.find("shape"); shape != root.end() && shape->is_object()) {
    info.shape.seq_len = shape->value("seq_len", int64_t{0});
    info.shape.chunk_tokens = shape->value("chunk_tokens", int64_t{0});
    info.shape.chunks_per_round = shape->value("chunks_per_round", int64_t{0});
    info.shape.rounds = shape->value("rounds", int64_t{0});
    info.shape.first_chunks = shape->value("first_chunks", int64_t{0});
    info.shape.short_rounds = shape->value("short_rounds", int64_t{0});
    info.shape.head_tokens = shape->value("head_tokens", int64_t{0});
  }
  return info;
}

}  // namespace sluice

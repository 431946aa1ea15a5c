#include "train/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <thread>

#include "base/hash.h"
#include "base/philox.h"
#include "io/safetensors.h"

namespace sluice {
namespace {

// Staged at a time.
constexpr int64_t kPieceElements = 16 << 20;
constexpr int64_t kPieceBytes = 32 << 20;

// Calls f(first, count) over [0, n) in contiguous parts on all cores.
template <class F>
void in_parallel(int64_t n, F&& f) {
  const auto threads = std::max<int64_t>(1, std::min<int64_t>(std::thread::hardware_concurrency(), n >> 16));
  std::vector<std::thread> pool;
  for (int64_t t = 1; t < threads; ++t) pool.emplace_back([&, t] { f(n * t / threads, n * (t + 1) / threads - n * t / threads); });
  f(0, n / threads);
  for (std::thread& t : pool) t.join();
}

// Normals (Box-Muller), four consecutive elements from one draw keyed by (key, element / 4).
// REQUIRES: first is a multiple of 4.
void normals(uint64_t key, int64_t first, std::span<float> out, float deviation) {
  const auto n = static_cast<int64_t>(out.size());
  in_parallel((n + 3) / 4, [&](int64_t begin, int64_t count) {
    for (int64_t group = begin; group < begin + count; ++group) {
      const Philox4 r = philox(key, static_cast<uint64_t>(first / 4 + group), 0);
      for (int pair = 0; pair < 2; ++pair) {
        const float radius = deviation * std::sqrt(-2 * std::log(uniform_open(r.v[2 * pair])));
        const float angle = 2 * std::numbers::pi_v<float> * uniform_open(r.v[2 * pair + 1]);
        const int64_t i = 4 * group + 2 * pair;
        if (i < n) out[size_t(i)] = radius * std::cos(angle);
        if (i + 1 < n) out[size_t(i + 1)] = radius * std::sin(angle);
      }
    }
  });
}

// Writes f32 values into an object of f32 or bf16 elements, from element `first` on.
Status write_floats(Executor& executor, ObjectId id, int64_t first, std::span<const float> values) {
  const DType dtype = executor.program().object(id).dtype;
  if (dtype == DType::F32) return executor.write(id, std::as_bytes(values), first * 4);
  std::vector<Bf16> rounded(values.size());
  in_parallel(int64_t(values.size()), [&](int64_t begin, int64_t count) {
    std::transform(values.begin() + begin, values.begin() + begin + count, rounded.begin() + begin,
                   [](float v) { return Bf16(v); });
  });
  return executor.write(id, std::as_bytes(std::span<const Bf16>(rounded)), first * 2);
}

// A parameter and the master weights of its parts, if there are any.
struct ParamObjects {
  ObjectId param;
  std::vector<ObjectId> masters;  // by part
};

ParamObjects find_param(const Program& program, const std::string& name) {
  ParamObjects out;
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    const Object& object = program.objects()[o];
    if (object.kind == ObjectKind::Param && object.name == name) out.param = ObjectId(o);
    if (object.kind == ObjectKind::OptState && object.name.starts_with("master_" + name + ".p")) {
      out.masters.push_back(ObjectId(o));
    }
  }
  SLUICE_CHECK(out.param.valid(), "no parameter {}", name);
  return out;
}

// Writes elements [first, first + size) of a parameter and of its master weights.
Status write_param(Executor& executor, const ParamObjects& objects, int64_t first, std::span<const float> values) {
  SLUICE_TRY(write_floats(executor, objects.param, first, values));
  int64_t part_first = 0;
  for (const ObjectId master : objects.masters) {
    const int64_t part = executor.program().object(master).bytes / 4;
    const int64_t begin = std::max(first, part_first);
    const int64_t end = std::min(first + int64_t(values.size()), part_first + part);
    if (begin < end) {
      const auto piece = values.subspan(size_t(begin - first), size_t(end - begin));
      SLUICE_TRY(write_floats(executor, master, begin - part_first, piece));
    }
    part_first += part;
  }
  return {};
}

Status write_constants(const LlamaConfig& config, const Model& model, Executor& executor) {
  const std::vector<float> inv_freq = rope_inv_freq(config.rope, config.head_dim);
  return executor.write(model.inv_freq, std::as_bytes(std::span(inv_freq)));
}

Status zero(Executor& executor, ObjectId id, std::span<const std::byte> zeros) {
  const int64_t total = executor.program().object(id).bytes;
  for (int64_t done = 0; done < total; done += int64_t(zeros.size())) {
    SLUICE_TRY(executor.write(id, zeros.first(size_t(std::min<int64_t>(int64_t(zeros.size()), total - done))), done));
  }
  return {};
}

}  // namespace

Status initialize(const LlamaConfig& config, const Model& model, uint64_t seed, Executor& executor,
                  const ByteProgress& progress) {
  const Program& program = model.program;
  int64_t total = 0, done = 0;
  for (const Object& o : program.objects()) total += o.persistent ? o.bytes : 0;
  std::vector<float> values;
  const std::vector<std::byte> zeros(size_t{kPieceBytes});
  SLUICE_TRY(write_constants(config, model, executor));
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    const Object& object = program.objects()[o];
    if (!object.persistent || object.kind == ObjectKind::Param || object.kind == ObjectKind::Constant) continue;
    SLUICE_TRY(zero(executor, ObjectId(o), zeros));
    progress(done += object.bytes, total);
  }
  for (const Weight& weight : llama_weights(config)) {
    const ParamObjects objects = find_param(program, weight.object);
    const Object& object = program.object(objects.param);
    const int64_t elements = object.bytes / size_of(object.dtype);
    const bool into_residual = object.role == "wo" || object.role == "wd";
    const float deviation = into_residual ? 0.02f / std::sqrt(2.0f * float(config.layers)) : 0.02f;
    const uint64_t key = Hash().add(seed).add(weight.object).value();
    for (int64_t first = 0; first < elements; first += kPieceElements) {
      values.assign(size_t(std::min(kPieceElements, elements - first)), 1.0f);
      if (!weight.is_norm) normals(key, first, values, deviation);
      SLUICE_TRY(write_param(executor, objects, first, values));
    }
    progress(done += object.bytes, total);
  }
  return {};
}

Status load_weights(const LlamaConfig& config, const Model& model, const std::filesystem::path& checkpoint,
                    Executor& executor) {
  SLUICE_ASSIGN(const TensorFiles files, TensorFiles::open(checkpoint));
  std::vector<float> values;
  for (const Weight& weight : llama_weights(config)) {
    const ParamObjects objects = find_param(model.program, weight.object);
    int64_t first = 0;
    for (const WeightSource& source : weight.sources) {
      SLUICE_ASSIGN(const SafeTensor* tensor, files.get(source.tensor));
      const std::vector<int64_t> expected =
          weight.is_norm ? std::vector<int64_t>{source.rows} : std::vector<int64_t>{source.rows, source.cols};
      if (tensor->info.shape != expected) {
        return error("{}: tensor {} has shape [{}], the model needs [{}]", checkpoint.string(), source.tensor,
                     fmt::join(tensor->info.shape, ", "), fmt::join(expected, ", "));
      }
      const bool bf16 = tensor->info.type == TensorType::BF16;
      if (!bf16 && tensor->info.type != TensorType::F32) {
        return error("{}: tensor {} has a type other than F32 and BF16", checkpoint.string(), source.tensor);
      }
      const int64_t elements = source.rows * source.cols;
      for (int64_t done = 0; done < elements; done += kPieceElements) {
        const int64_t n = std::min(kPieceElements, elements - done);
        values.resize(size_t(n));
        if (bf16) {
          std::vector<Bf16> raw(values.size());
          std::memcpy(raw.data(), tensor->bytes.data() + 2 * done, size_t(2 * n));
          std::transform(raw.begin(), raw.end(), values.begin(), [](Bf16 v) { return float(v); });
        } else {
          std::memcpy(values.data(), tensor->bytes.data() + 4 * done, size_t(4 * n));
        }
        SLUICE_TRY(write_param(executor, objects, first + done, values));
      }
      first += elements;
    }
  }
  return {};
}

namespace {

// Copies bytes [offset, offset + bytes) of an object into a declared tensor, in pieces.
Status copy_out(const Executor& executor, ObjectId id, int64_t offset, int64_t bytes, const std::string& tensor,
                SafeTensorsWriter& writer) {
  std::vector<std::byte> piece;
  for (int64_t done = 0; done < bytes; done += kPieceBytes) {
    piece.resize(size_t(std::min(kPieceBytes, bytes - done)));
    SLUICE_TRY(executor.read(id, piece, offset + done));
    SLUICE_TRY(writer.write(tensor, done, piece));
  }
  return {};
}

Status save_model(const LlamaConfig& config, const Program& program, const std::filesystem::path& path,
                  const Executor& executor) {
  std::vector<TensorInfo> infos;
  const std::vector<Weight> weights = llama_weights(config);
  for (const Weight& weight : weights) {
    const DType dtype = program.object(find_param(program, weight.object).param).dtype;
    for (const WeightSource& s : weight.sources) {
      std::vector<int64_t> shape{s.rows};
      if (!weight.is_norm) shape.push_back(s.cols);
      infos.push_back({s.tensor, tensor_type(dtype), shape});
    }
  }
  SLUICE_ASSIGN(SafeTensorsWriter writer, SafeTensorsWriter::create(path, infos, {{"format", "pt"}}));
  for (const Weight& weight : weights) {
    const ObjectId param = find_param(program, weight.object).param;
    int64_t offset = 0;
    for (const WeightSource& s : weight.sources) {
      const int64_t bytes = s.rows * s.cols * size_of(program.object(param).dtype);
      SLUICE_TRY(copy_out(executor, param, offset, bytes, s.tensor, writer));
      offset += bytes;
    }
  }
  return writer.commit();
}

std::vector<ObjectId> state_objects(const Program& program) {
  std::vector<ObjectId> out;
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    if (program.objects()[o].kind == ObjectKind::OptState) out.push_back(ObjectId(o));
  }
  return out;
}

}  // namespace

Status save_checkpoint(const LlamaConfig& config, const Model& model, const CheckpointInfo& info,
                       const std::filesystem::path& dir, const Executor& executor) {
  const Program& program = model.program;
  SLUICE_TRY(make_directories(dir));
  SLUICE_TRY(save_model(config, program, dir / "model.safetensors", executor));
  std::vector<TensorInfo> infos;
  for (const ObjectId id : state_objects(program)) {
    const Object& o = program.object(id);
    infos.push_back({o.name, tensor_type(o.dtype), {o.bytes / size_of(o.dtype)}});
  }
  SLUICE_ASSIGN(SafeTensorsWriter writer, SafeTensorsWriter::create(dir / "optimizer.safetensors", infos));
  for (const ObjectId id : state_objects(program)) {
    const Object& o = program.object(id);
    SLUICE_TRY(copy_out(executor, id, 0, o.bytes, o.name, writer));
  }
  SLUICE_TRY(writer.commit());
  SLUICE_TRY(write_file(dir / "config.json", to_json(config)));
  const StepShape& s = info.shape;
  const nlohmann::json root = {{"step", info.step},
                               {"shape",
                                {{"seq_len", s.seq_len},
                                 {"chunk_tokens", s.chunk_tokens},
                                 {"chunks_per_round", s.chunks_per_round},
                                 {"rounds", s.rounds},
                                 {"head_tokens", s.head_tokens}}}};
  return write_file(dir / "checkpoint.json", root.dump(2));
}

Result<CheckpointInfo> load_checkpoint(const LlamaConfig& config, const Model& model, const std::filesystem::path& dir,
                                       Executor& executor) {
  SLUICE_ASSIGN(const std::string text, read_file(dir / "checkpoint.json"));
  const auto root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object() || !root.contains("step") || !root["step"].is_number_integer()) {
    return error("{}: not a checkpoint: no step", (dir / "checkpoint.json").string());
  }
  SLUICE_TRY(load_weights(config, model, dir / "model.safetensors", executor));
  SLUICE_ASSIGN(const TensorFiles files, TensorFiles::open(dir / "optimizer.safetensors"));
  for (const ObjectId id : state_objects(model.program)) {
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
    info.shape.head_tokens = shape->value("head_tokens", int64_t{0});
  }
  return info;
}

}  // namespace sluice

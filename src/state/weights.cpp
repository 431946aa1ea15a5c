#include "state/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numbers>
#include <thread>

#include "base/hash.h"
#include "base/philox.h"
#include "io/safetensors.h"

namespace sluice {
namespace {

// Elements that one thread makes at a time: their bytes stay in its cache until they are written.
constexpr int64_t kTileElements = 256 << 10;
constexpr int64_t kPieceBytes = 32 << 20;

// What a thread makes a tile in.
struct Tile {
  std::vector<float> values;
  std::vector<Bf16> rounded;
};

// Calls f(job, tile) for jobs 0 to count - 1 on all cores; after each job of its own this thread calls
// report(). `bytes` is the work in all: little work is done by this thread alone. The first error ends the
// rest.
template <class F, class Report>
Status for_each_job(int64_t count, int64_t bytes, F&& f, Report&& report) {
  const int64_t cores = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 32);
  const int64_t threads = std::clamp<int64_t>(bytes >> 18, 1, cores);
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  Status first_error;
  const auto work = [&](bool reports) {
    Tile tile;
    for (int64_t job = next++; job < count; job = next++) {
      if (const Status status = f(job, tile); !status.ok()) {
        const std::lock_guard lock(mutex);
        if (first_error.ok()) first_error = status;
        next = count;
      }
      if (reports) report();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int64_t t = 1; t < std::min(threads, count); ++t) others.emplace_back(work, false);
    work(true);
  }
  return first_error;
}

// Normals (Box-Muller), four consecutive elements from one draw keyed by (key, element / 4).
// REQUIRES: first is a multiple of 4.
void normals(uint64_t key, int64_t first, std::span<float> out, float deviation) {
  const auto n = static_cast<int64_t>(out.size());
  for (int64_t group = 0; group < (n + 3) / 4; ++group) {
    const Philox4 r = philox(key, static_cast<uint64_t>(first / 4 + group), 0);
    for (int pair = 0; pair < 2; ++pair) {
      const float radius = deviation * std::sqrt(-2 * std::log(uniform_open(r.v[2 * pair])));
      const float angle = 2 * std::numbers::pi_v<float> * uniform_open(r.v[2 * pair + 1]);
      const int64_t i = 4 * group + 2 * pair;
      if (i < n) out[size_t(i)] = radius * std::cos(angle);
      if (i + 1 < n) out[size_t(i + 1)] = radius * std::sin(angle);
    }
  }
}

// Writes f32 values into an object of f32 or bf16 elements, from element `first` on.
Status write_floats(Executor& executor, ObjectId id, int64_t first, std::span<const float> values,
                    std::vector<Bf16>& rounded) {
  const DType dtype = executor.program().object(id).dtype;
  if (dtype == DType::F32) return executor.write(id, std::as_bytes(values), first * 4);
  rounded.resize(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), [](float v) { return Bf16(v); });
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

// Writes elements [first, first + tile.values.size()) of a parameter and of its master weights.
Status write_param(Executor& executor, const ParamObjects& objects, int64_t first, Tile& tile) {
  const std::span<const float> values(tile.values);
  SLUICE_TRY(write_floats(executor, objects.param, first, values, tile.rounded));
  int64_t part_first = 0;
  for (const ObjectId master : objects.masters) {
    const int64_t part = executor.program().object(master).bytes / 4;
    const int64_t begin = std::max(first, part_first);
    const int64_t end = std::min(first + int64_t(values.size()), part_first + part);
    if (begin < end) {
      const auto piece = values.subspan(size_t(begin - first), size_t(end - begin));
      SLUICE_TRY(write_floats(executor, master, begin - part_first, piece, tile.rounded));
    }
    part_first += part;
  }
  return {};
}

Status write_constants(const LlamaConfig& config, const Model& model, Executor& executor) {
  const std::vector<float> inv_freq = rope_inv_freq(config.rope, config.head_dim);
  return executor.write(model.inv_freq, std::as_bytes(std::span(inv_freq)));
}

// Part of the state: `count` elements of a parameter from `first` on, or a whole object that becomes zero.
struct Job {
  ObjectId zero;  // or
  const Weight* weight = nullptr;
  const ParamObjects* objects = nullptr;
  int64_t first = 0, count = 0;
  int64_t bytes = 0;
};

void add_tiles(const Weight& weight, const ParamObjects& objects, const Program& program,
               std::vector<Job>& jobs) {
  const Object& object = program.object(objects.param);
  const int64_t size = size_of(object.dtype), elements = object.bytes / size;
  for (int64_t first = 0; first < elements; first += kTileElements) {
    const int64_t count = std::min(kTileElements, elements - first);
    jobs.push_back({{}, &weight, &objects, first, count, count * size});
  }
}

std::vector<ParamObjects> find_params(const Program& program, std::span<const Weight> weights) {
  std::vector<ParamObjects> out;
  for (const Weight& weight : weights) out.push_back(find_param(program, weight.object));
  return out;
}

}  // namespace

Status initialize(const LlamaConfig& config, const Model& model, uint64_t seed, Executor& executor,
                  const ByteProgress& progress) {
  const Program& program = model.program;
  SLUICE_TRY(write_constants(config, model, executor));
  const std::vector<Weight> weights = llama_weights(config);
  const std::vector<ParamObjects> params = find_params(program, weights);
  std::vector<Job> jobs;
  // Weights first: they take longest, and zeros even out the end.
  for (size_t w = 0; w < weights.size(); ++w) add_tiles(weights[w], params[w], program, jobs);
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    const Object& object = program.objects()[o];
    if (!object.persistent || object.kind == ObjectKind::Param || object.kind == ObjectKind::Constant)
      continue;
    // Master weights are written with their parameters.
    if (object.kind == ObjectKind::OptState && object.name.starts_with("master_")) continue;
    jobs.push_back({ObjectId(o), nullptr, nullptr, 0, 0, object.bytes});
  }
  int64_t total = 0;
  for (const Job& job : jobs) total += job.bytes;
  std::atomic<int64_t> done = 0;
  const auto run = [&](int64_t index, Tile& tile) -> Status {
    const Job& job = jobs[size_t(index)];
    if (job.weight == nullptr) {
      SLUICE_TRY(executor.clear(job.zero));
    } else {
      const std::string& role = program.object(job.objects->param).role;
      const bool into_residual = role == "wo" || role == "wd";
      const float deviation = into_residual ? 0.02f / std::sqrt(2.0f * float(config.layers)) : 0.02f;
      const uint64_t key = Hash().add(seed).add(job.weight->object).value();
      tile.values.assign(size_t(job.count), 1.0f);
      if (!job.weight->is_norm) normals(key, job.first, tile.values, deviation);
      SLUICE_TRY(write_param(executor, *job.objects, job.first, tile));
    }
    done += job.bytes;
    return {};
  };
  return for_each_job(int64_t(jobs.size()), total, run, [&] { progress(done, total); });
}

namespace {

// A tensor of a checkpoint, of the type and shape that the model needs.
Result<const SafeTensor*> find_tensor(const TensorFiles& files, const Weight& weight,
                                      const WeightSource& source, const std::filesystem::path& checkpoint) {
  SLUICE_ASSIGN(const SafeTensor* tensor, files.get(source.tensor));
  const std::vector<int64_t> expected =
      weight.is_norm ? std::vector<int64_t>{source.rows} : std::vector<int64_t>{source.rows, source.cols};
  if (tensor->info.shape != expected) {
    return error("{}: tensor {} has shape [{}], the model needs [{}]", checkpoint.string(), source.tensor,
                 fmt::join(tensor->info.shape, ", "), fmt::join(expected, ", "));
  }
  if (tensor->info.type != TensorType::BF16 && tensor->info.type != TensorType::F32) {
    return error("{}: tensor {} has a type other than F32 and BF16", checkpoint.string(), source.tensor);
  }
  return tensor;
}

// Elements [first, first + count) of a tensor as floats.
void read_floats(const SafeTensor& tensor, int64_t first, int64_t count, Tile& tile) {
  tile.values.resize(size_t(count));
  if (tensor.info.type == TensorType::F32) {
    std::memcpy(tile.values.data(), tensor.bytes.data() + 4 * first, size_t(4 * count));
    return;
  }
  tile.rounded.resize(size_t(count));
  std::memcpy(tile.rounded.data(), tensor.bytes.data() + 2 * first, size_t(2 * count));
  std::transform(tile.rounded.begin(), tile.rounded.end(), tile.values.begin(),
                 [](Bf16 v) { return float(v); });
}

}  // namespace

Status load_weights(const LlamaConfig& config, const Model& model, const std::filesystem::path& checkpoint,
                    Executor& executor) {
  SLUICE_ASSIGN(const TensorFiles files, TensorFiles::open(checkpoint));
  const std::vector<Weight> weights = llama_weights(config);
  const std::vector<ParamObjects> params = find_params(model.program, weights);
  // A tile of a tensor, and where its first element lies in the parameter.
  struct Part {
    const SafeTensor* tensor;
    const ParamObjects* objects;
    int64_t from, to, count;
  };
  std::vector<Part> parts;
  int64_t total = 0;
  for (size_t w = 0; w < weights.size(); ++w) {
    int64_t first = 0;
    for (const WeightSource& source : weights[w].sources) {
      SLUICE_ASSIGN(const SafeTensor* tensor, find_tensor(files, weights[w], source, checkpoint));
      const int64_t elements = source.rows * source.cols;
      for (int64_t done = 0; done < elements; done += kTileElements) {
        parts.push_back({tensor, &params[w], done, first + done, std::min(kTileElements, elements - done)});
      }
      first += elements;
    }
    total += first * 4;
  }
  const auto run = [&](int64_t index, Tile& tile) -> Status {
    const Part& part = parts[size_t(index)];
    read_floats(*part.tensor, part.from, part.count, tile);
    return write_param(executor, *part.objects, part.to, tile);
  };
  return for_each_job(int64_t(parts.size()), total, run, [] {});
}

namespace {

// Copies bytes [offset, offset + bytes) of an object into a declared tensor, in pieces.
Status copy_out(const Executor& executor, ObjectId id, int64_t offset, int64_t bytes,
                const std::string& tensor, SafeTensorsWriter& writer) {
  std::vector<std::byte> piece;
  for (int64_t done = 0; done < bytes; done += kPieceBytes) {
    piece.resize(size_t(std::min(kPieceBytes, bytes - done)));
    SLUICE_TRY(executor.read(id, piece, offset + done));
    SLUICE_TRY(writer.write(tensor, done, piece));
  }
  return {};
}

}  // namespace

Status save_weights(const LlamaConfig& config, const Program& program, const std::filesystem::path& path,
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

namespace {

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
  SLUICE_TRY(save_weights(config, program, dir / "model.safetensors", executor));
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
                                 {"first_chunks", s.first_chunks},
                                 {"short_rounds", s.short_rounds},
                                 {"head_tokens", s.head_tokens}}}};
  return write_file(dir / "checkpoint.json", root.dump(2));
}

Result<CheckpointInfo> load_checkpoint(const LlamaConfig& config, const Model& model,
                                       const std::filesystem::path& dir, Executor& executor) {
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
    info.shape.first_chunks = shape->value("first_chunks", int64_t{0});
    info.shape.short_rounds = shape->value("short_rounds", int64_t{0});
    info.shape.head_tokens = shape->value("head_tokens", int64_t{0});
  }
  return info;
}

}  // namespace sluice

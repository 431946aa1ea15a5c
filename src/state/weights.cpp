// SPDX-License-Identifier: Apache-2.0
#include "state/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numbers>
#include <thread>
#include <type_traits>

#include "base/hash.h"
#include "base/philox.h"

namespace sluice::core {
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
  return with_type(dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>) {
      return executor.write(id, std::as_bytes(values), first * size_of(dtype));
    } else {
      rounded.resize(values.size());
      std::transform(values.begin(), values.end(), rounded.begin(), [](float v) { return T(v); });
      return executor.write(id, std::as_bytes(std::span<const T>(rounded)), first * size_of(dtype));
    }
  });
}

// Writes elements [first, first + tile.values.size()) of a parameter and of its master weights.
Status write_param(Executor& executor, const ParamObjects& objects, int64_t first, Tile& tile) {
  const std::span<const float> values(tile.values);
  SLUICE_TRY(write_floats(executor, objects.param, first, values, tile.rounded));
  for (const ParamObjects::Part& part : objects.parts) {
    const int64_t begin = std::max(first, part.first);
    const int64_t end = std::min(first + int64_t(values.size()), part.first + part.elements);
    if (!part.master.valid() || begin >= end) continue;
    const auto piece = values.subspan(size_t(begin - first), size_t(end - begin));
    SLUICE_TRY(write_floats(executor, part.master, begin - part.first, piece, tile.rounded));
  }
  return {};
}

Status write_constants(const Model& model, Executor& executor) {
  for (const Model::Constant& c : model.constants) {
    SLUICE_TRY(executor.write(c.object, std::as_bytes(std::span(c.values))));
  }
  return {};
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

}  // namespace

Status initialize(const Model& model, uint64_t seed, Executor& executor, const ByteProgress& progress) {
  const Program& program = model.program;
  SLUICE_TRY(write_constants(model, executor));
  std::vector<Job> jobs;
  std::vector<bool> written(program.objects().size(), false);
  // Weights first: they take longest, and zeros even out the end.
  for (size_t w = 0; w < model.weights.size(); ++w) {
    const ParamObjects& objects = model.params[w];
    add_tiles(model.weights[w], objects, program, jobs);
    // Master weights are written with their parameters.
    written[objects.param.value] = true;
    for (const ParamObjects::Part& part : objects.parts) {
      if (part.master.valid()) written[part.master.value] = true;
    }
  }
  for (const Model::Constant& c : model.constants) written[c.object.value] = true;
  for (uint32_t o = 0; o < program.objects().size(); ++o) {
    const Object& object = program.objects()[o];
    if (object.persistent && !written[o]) jobs.push_back({ObjectId(o), nullptr, nullptr, 0, 0, object.bytes});
  }
  int64_t total = 0;
  for (const Job& job : jobs) total += job.bytes;
  std::atomic<int64_t> done = 0;
  const auto run = [&](int64_t index, Tile& tile) -> Status {
    const Job& job = jobs[size_t(index)];
    if (job.weight == nullptr) {
      SLUICE_TRY(executor.clear(job.zero));
    } else {
      const Init& init = job.weight->init;
      tile.values.assign(size_t(job.count), init.kind == Init::Ones ? 1.0f : 0.0f);
      if (init.kind == Init::Normal) {
        const uint64_t key = Hash().add(seed).add(job.weight->object).value();
        normals(key, job.first, tile.values, init.deviation);
      }
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
      weight.matrix ? std::vector<int64_t>{source.rows, source.cols} : std::vector<int64_t>{source.rows};
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

Status load_weights(const Model& model, const std::filesystem::path& checkpoint, Executor& executor) {
  SLUICE_ASSIGN(const TensorFiles files, TensorFiles::open(checkpoint));
  const std::vector<Weight>& weights = model.weights;
  const std::vector<ParamObjects>& params = model.params;
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

Status save_weights(const Model& model, const std::filesystem::path& path, const Executor& executor,
                    std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";
  const auto type_of = [&](size_t weight) { return model.program.object(model.params[weight].param).dtype; };
  std::vector<TensorInfo> infos;
  for (size_t w = 0; w < model.weights.size(); ++w) {
    for (const WeightSource& s : model.weights[w].sources) {
      std::vector<int64_t> shape{s.rows};
      if (model.weights[w].matrix) shape.push_back(s.cols);
      infos.push_back({s.tensor, tensor_type(type_of(w)), shape});
    }
  }
  SLUICE_ASSIGN(SafeTensorsWriter writer, SafeTensorsWriter::create(path, infos, metadata));
  for (size_t w = 0; w < model.weights.size(); ++w) {
    int64_t offset = 0;
    for (const WeightSource& s : model.weights[w].sources) {
      const int64_t bytes = s.rows * s.cols * size_of(type_of(w));
      SLUICE_TRY(copy_out(executor, model.params[w].param, offset, bytes, s.tensor, writer));
      offset += bytes;
    }
  }
  return writer.commit();
}

}  // namespace sluice::core

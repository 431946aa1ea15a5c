// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <numbers>
#include <thread>
#include <type_traits>

#include "base/hash.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "checkpoint/compact.h"
#include "checkpoint/found_tensor.h"
#include "checkpoint/write.h"
#include "io/elements.h"

namespace sluice::core {
namespace {

// Elements that one thread makes at a time: their bytes stay in its cache until they are written.
constexpr int64_t kTileElements = 256 << 10;

// A thread's memory for a tile.
struct Tile {
  std::vector<std::byte> gathered;
  std::vector<float> values;
  std::vector<Bf16> rounded;
  std::vector<std::byte> residuals;
  PackedBlocks packed;
};

// The elements of a weight that are written together: whole blocks.
int64_t unit_of(const Weight& weight) {
  return is_packed(weight) ? int64_t{weight.format->block} : 1;
}
int64_t tile_of(const Weight& weight) {
  const int64_t unit = unit_of(weight);
  return std::max(kTileElements / unit, int64_t{1}) * unit;
}

// Copies `count` elements that are `step` elements apart.
void gather(const std::byte* from, int64_t step, int64_t size, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i, from += step * size, to += size) std::memcpy(to, from, size_t(size));
}

// Calls f(job, tile) for jobs 0 to count - 1 on all cores; after each job of its own this thread calls
// report(). `bytes` is the work in all: little work is done by this thread alone. The first error ends the
// rest.
template <class F, class Report>
Status for_each_job(int64_t count, int64_t bytes, F&& f, Report&& report) {
  const int64_t threads = std::clamp<int64_t>(bytes >> 18, 1, search_threads());
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  Status first_error;
  const std::thread::id here = std::this_thread::get_id();
  for_each_parallel(std::min(threads, count), int(threads), [&](int64_t) {
    Tile tile;
    for (int64_t job = next++; job < count; job = next++) {
      if (const Status status = f(job, tile); !status.ok()) {
        const std::lock_guard lock(mutex);
        if (first_error.ok()) first_error = status;
        next = count;
      }
      if (std::this_thread::get_id() == here) report();
    }
  });
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

// In (-largest, largest).
void uniforms(uint64_t key, int64_t first, std::span<float> out, float largest) {
  for (size_t i = 0; i < out.size(); ++i) {
    const Philox4 r = philox(key, uint64_t(first) / 4 + i / 4, 0);
    out[i] = largest * (2 * uniform_open(r.v[i % 4]) - 1);
  }
}

// Writes f32 values into an object of f32 or bf16 elements, from element `first` on.
Status write_floats(Executor& executor, ObjectId id, int64_t first, std::span<const float> values,
                    std::vector<Bf16>& rounded) {
  const DType dtype = executor.program().object(id).format.type;
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

// Codes and scales of whole blocks, from element `first` on.
Status write_blocks(Executor& executor, ObjectId id, int64_t first, const PackedBlocks& blocks) {
  const Object& object = executor.program().object(id);
  const NumberFormat& format = object.format;
  const NumberFormat codes = format.type;
  SLUICE_TRY(executor.write(id, blocks.elements, codes.bytes(first)));
  return executor.write(id, blocks.scales,
                        codes.bytes(object.elements()) + first / format.block * size_of(format.scale));
}

// Likewise, of values that are packed.
Status write_packed(Executor& executor, ObjectId id, int64_t first, std::span<const float> values,
                    PackedBlocks& packed) {
  const Object& object = executor.program().object(id);
  pack(object.format, values, packed);
  return write_blocks(executor, id, first, packed);
}

// Writes elements [first, first + tile.values.size()) of a parameter and of its master weights. REQUIRES: of
// one that is packed they are whole blocks.
Status write_param(Executor& executor, const ParamObjects& objects, int64_t first, Tile& tile) {
  const std::span<const float> values(tile.values);
  if (executor.program().object(objects.param).format.block > 0)
    return write_packed(executor, objects.param, first, values, tile.packed);
  const bool joined = objects.masters == MasterWeights::I8;
  if (joined) {
    split_masters(values, tile.rounded, tile.residuals);
    SLUICE_TRY(executor.write(objects.param, std::as_bytes(std::span(tile.rounded)), 2 * first));
  } else {
    SLUICE_TRY(write_floats(executor, objects.param, first, values, tile.rounded));
  }
  for (const ParamObjects::Part& part : objects.parts) {
    const int64_t begin = std::max(first, part.first);
    const int64_t end = std::min(first + int64_t(values.size()), part.first + part.elements());
    if (!part.master.valid() || begin >= end) continue;
    const auto at = size_t(begin - first), count = size_t(end - begin);
    if (joined) {
      SLUICE_TRY(
          executor.write(part.master, std::span(tile.residuals).subspan(at, count), begin - part.first));
      continue;
    }
    const auto piece = values.subspan(at, count);
    SLUICE_TRY(write_floats(executor, part.master, begin - part.first, piece, tile.rounded));
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
  const int64_t elements = object.elements();
  const int64_t tile = tile_of(weight);
  for (int64_t first = 0; first < elements; first += tile) {
    const int64_t count = std::min(tile, elements - first);
    jobs.push_back({{}, &weight, &objects, first, count, object.format.bytes(count)});
  }
}

}  // namespace

void random_values(const Weight& weight, uint64_t seed, int64_t first, int64_t count,
                   std::vector<float>& values) {
  const Init& init = weight.init;
  // Draws are of four.
  const int64_t before = first % 4;
  values.assign(size_t(before + count), init.kind == Init::Ones ? 1.0f : 0.0f);
  if (init.kind == Init::Normal) {
    normals(Hash().add(seed).add(weight.object).value(), first - before, values, init.deviation);
  }
  if (init.kind == Init::Uniform) {
    uniforms(Hash().add(seed).add(weight.object).value(), first - before, values, init.deviation);
  }
  if (init.kind == Init::LogUniform) {
    constexpr float kLeast = 0.01f;  // its logarithm is a number
    uniforms(Hash().add(seed).add(weight.object).value(), first - before, values, 1);
    for (float& x : values) x = std::log(kLeast + (init.deviation - kLeast) * (x + 1) / 2);
  }
  values.erase(values.begin(), values.begin() + before);
}

Status write_constants(const BuiltProgram& model, Executor& executor) {
  for (const BuiltProgram::Constant& c : model.constants) {
    SLUICE_TRY(executor.write(c.object, std::as_bytes(std::span(c.values))));
  }
  return {};
}

Status initialize(const BuiltProgram& model, uint64_t seed, Executor& executor,
                  const ByteProgress& progress) {
  const Program& program = model.program;
  SLUICE_TRY(write_constants(model, executor));
  std::vector<Job> jobs;
  std::vector<bool> written(program.objects().size(), false);
  // Weights first: they take longest, and zeros even out the end.
  for (size_t w = 0; w < model.weights.size(); ++w) {
    const ParamObjects& objects = model.params[w];
    // An object that files alone have is there.
    const std::vector<Location>& places = executor.plan().homes[objects.param.value].places();
    const bool made = std::ranges::any_of(places, [](const Location& l) { return l.tier != kDisk; });
    if (made) add_tiles(model.weights[w], objects, program, jobs);
    // Master weights are written with their parameters.
    written[objects.param.value] = true;
    for (const ParamObjects::Part& part : objects.parts) {
      if (part.master.valid()) written[part.master.value] = true;
    }
  }
  for (const BuiltProgram::Constant& c : model.constants) written[c.object.value] = true;
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
      random_values(*job.weight, seed, job.first, job.count, tile.values);
      SLUICE_TRY(write_param(executor, *job.objects, job.first, tile));
    }
    done += job.bytes;
    return {};
  };
  return for_each_job(int64_t(jobs.size()), total, run, [&] { progress(done, total); });
}

std::map<std::string, std::vector<WeightPlace>, std::less<>> weight_places(const BuiltProgram& model,
                                                                           Held held) {
  std::map<std::string, std::vector<WeightPlace>, std::less<>> out;
  for (size_t w = 0; w < model.weights.size(); ++w) {
    if (!holds(held, model.weights[w])) continue;
    for (const auto& [first, rows] : rows_in(held, model.weights[w]))
      out[rows->tensor].push_back({w, rows, first});
  }
  return out;
}

Status check_weight(const BuiltProgram& model, const WeightPlace& place, const TensorInfo& tensor,
                    const std::filesystem::path& path) {
  return check_stored(tensor, place.source->shape(model.weights[place.weight].matrix), path);
}

namespace {

// Elements of a tensor from `first` on, which are a weight's from `to` on.
Status write_part(const BuiltProgram& model, size_t weight, int64_t to, const TensorInfo& tensor,
                  int64_t first, std::span<const std::byte> bytes, Executor& executor) {
  const int64_t size = size_of(tensor.type), elements = int64_t(bytes.size()) / size;
  const int64_t step = tile_of(model.weights[weight]);
  const auto run = [&](int64_t index, Tile& tile) -> Status {
    const int64_t from = index * step, count = std::min(step, elements - from);
    const auto part = bytes.subspan(size_t(from * size), size_t(count * size));
    SLUICE_TRY(check_values(tensor, false, first + from, part));
    read_elements(tensor.type, part, tile.values);
    return write_param(executor, model.params[weight], to + from, tile);
  };
  return for_each_job((elements + step - 1) / step, elements * 4, run, [] {});
}

// Writes elements of a turned tensor from `begin` on: a run of each of the place's rows.
Status write_runs(const BuiltProgram& model, const WeightPlace& place, const TensorInfo& tensor,
                  int64_t begin, std::span<const std::byte> bytes, Executor& executor) {
  const WeightSource& source = *place.source;
  const int64_t size = size_of(tensor.type), end = begin + int64_t(bytes.size()) / size;
  const int64_t step = source.matrix_rows(), matrix = step * source.cols;
  const int64_t top = source.first_row / step * matrix;
  if (end <= top || begin >= top + matrix) return {};
  const auto run = [&](int64_t row, Tile& tile) -> Status {
    const int64_t first = row * source.cols;
    const int64_t up =
        source.in_tensor(source.stretch(first, first + source.cols).at);  // of its first column
    // The columns that lie in the bytes.
    const int64_t from = up >= begin ? 0 : std::min(source.cols, (begin - up + step - 1) / step);
    const int64_t to = up >= end ? 0 : std::min(source.cols, (end - up + step - 1) / step);
    if (from >= to) return {};
    tile.gathered.resize(size_t((to - from) * size));
    gather(bytes.data() + (up + from * step - begin) * size, step, size, to - from, tile.gathered.data());
    SLUICE_TRY(check_values(tensor, false, up + from * step, tile.gathered));
    read_elements(tensor.type, tile.gathered, tile.values);
    return write_param(executor, model.params[place.weight], place.first + first + from, tile);
  };
  return for_each_job(source.rows, int64_t(bytes.size()), run, [] {});
}

}  // namespace

Status write_weight(const BuiltProgram& model, std::span<const WeightPlace> places, const TensorInfo& tensor,
                    int64_t offset, std::span<const std::byte> bytes, Executor& executor) {
  const int64_t size = size_of(tensor.type), begin = offset / size;
  const int64_t end = begin + int64_t(bytes.size()) / size;
  for (const WeightPlace& place : places) {
    if (place.source->transposed) {
      SLUICE_TRY(write_runs(model, place, tensor, begin, bytes, executor));
      continue;
    }
    const int64_t elements = place.source->elements();
    for (int64_t done = 0; done < elements;) {
      const auto [at, count] = place.source->stretch(done, elements);
      const int64_t from = std::max(begin, at), to = std::min(end, at + count);
      if (from < to)
        SLUICE_TRY(write_part(model, place.weight, place.first + done + from - at, tensor, from,
                              bytes.subspan(size_t((from - begin) * size), size_t((to - from) * size)),
                              executor));
      done += count;
    }
  }
  return {};
}

bool has_residuals(const Program& program, const ParamObjects::Part& part) {
  return part.master.valid() && program.object(part.master).format == DType::I8;
}

Status read_joined(const Executor& executor, ObjectId parameter, int64_t first,
                   std::span<const std::byte> residuals, std::vector<float>& values) {
  constexpr int64_t kSize = size_of(DType::BF16);
  std::vector<std::byte> parameters(residuals.size() * kSize);
  SLUICE_TRY(executor.read(parameter, parameters, kSize * first));
  join_masters(parameters, residuals, values);
  return {};
}

Status write_values(const ParamObjects& objects, int64_t first, std::span<const float> values,
                    Executor& executor) {
  Tile tile;
  tile.values.assign(values.begin(), values.end());
  return write_param(executor, objects, first, tile);
}

namespace {

bool is_table(const Weight& weight) {
  return weight.part == ModelPart::Embedding || weight.part == ModelPart::Table;
}

// One whose matrices are turned, in its own order: in that of its weights all of its pages would be read for
// each tile.
Status load_turned(const BuiltProgram& model, std::span<const WeightPlace> places, const SafeTensor& tensor,
                   const TensorFiles& files, Executor* executor, Checksummer* values) {
  const int64_t step = kTileElements * size_of(tensor.info.type), bytes = int64_t(tensor.bytes.size());
  std::vector<float> numbers;
  for (int64_t done = 0; done < bytes; done += step) {
    const auto piece = tensor.bytes.subspan(size_t(done), size_t(std::min(step, bytes - done)));
    if (executor != nullptr) SLUICE_TRY(write_weight(model, places, tensor.info, done, piece, *executor));
    if (values != nullptr) {
      read_elements(tensor.info.type, piece, numbers);
      values->add(std::as_bytes(std::span(numbers)));
    }
    files.release();
  }
  return {};
}

// Blocks of a place, elements [begin, end) of it, get the tensor's codes and scales.
Status write_as_it_is(Executor& executor, ObjectId id, const WeightPlace& place, const FoundTensor& tensor,
                      int64_t begin, int64_t end, Tile& tile) {
  for (int64_t done = begin; done < end;) {
    const auto [at, count] = place.source->stretch(done, end);
    tensor.packed->read(tensor.first + at, count, tile.packed);
    SLUICE_TRY(write_blocks(executor, id, place.first + done, tile.packed));
    done += count;
  }
  return {};
}

// Without an executor they are read for their checksum alone.
Status read_weights(const BuiltProgram& model, const std::filesystem::path& checkpoint, Executor* executor,
                    Held held, BaseValues* base) {
  SLUICE_ASSIGN(const TensorFiles files, TensorFiles::open(checkpoint));
  // A tile of a tensor's rows, in the order of the weight.
  struct Part {
    const FoundTensor* tensor;
    const WeightPlace* place;
    int64_t first, count;
  };
  const auto places = weight_places(model, held);
  std::deque<FoundTensor> tensors;
  std::vector<Part> parts;
  Checksummer turned;
  int64_t total = 0;
  for (const auto& [name, of_tensor] : places) {
    const WeightPlace& one = of_tensor.front();
    SLUICE_ASSIGN(FoundTensor found, find_tensor(files, *one.source, model.weights[one.weight].matrix));
    if (one.source->transposed && !found.packed) {
      const Status loaded =
          load_turned(model, of_tensor, *found.tensor, files, executor, base == nullptr ? nullptr : &turned);
      if (!loaded.ok()) return error_at(checkpoint.string(), loaded.error());
      continue;
    }
    const FoundTensor* const tensor = &tensors.emplace_back(std::move(found));
    // Weights whose rows stand beside each other in the tensor read the same rows in turn, so that its pages
    // are read once.
    int64_t largest = 0;
    for (const WeightPlace& place : of_tensor) largest = std::max(largest, place.source->elements());
    const int64_t step = of_tensor.front().source->abreast > 1 ? kTileElements : largest;
    for (int64_t first = 0; first < largest; first += step) {
      for (const WeightPlace& place : of_tensor) {
        const int64_t end = std::min(first + step, place.source->elements());
        for (int64_t done = first; done < end; done += kTileElements)
          parts.push_back({tensor, &place, done, std::min(kTileElements, end - done)});
      }
    }
    for (const WeightPlace& place : of_tensor) total += place.source->elements() * 4;
  }
  // Pages of the files that were read are given back before they are many: a host cap counts them.
  constexpr int64_t kMostResidentBytes = 8 << 20;
  std::atomic<int64_t> read_bytes = 0;
  std::vector<Checksum> sums(base == nullptr ? 0 : parts.size());
  const auto run = [&](int64_t index, Tile& tile) -> Status {
    const auto& [tensor, place, first, count] = parts[size_t(index)];
    // Blocks that begin in the tile are written, to their ends.
    const Weight& weight = model.weights[place->weight];
    const int64_t unit = executor == nullptr ? 1 : unit_of(weight);
    const int64_t begin = (first + unit - 1) / unit * unit, end = (first + count + unit - 1) / unit * unit;
    tile.values.resize(size_t(end - first));
    int64_t read = 0;
    for (int64_t done = 0; done < end - first;) {
      const auto [at, follow] = place->source->stretch(first + done, end);
      const auto values = std::span(tile.values).subspan(size_t(done), size_t(follow));
      const auto bytes = tensor->read(at, values);
      if (!bytes.ok()) return error_at(checkpoint.string(), bytes.error());
      read += *bytes, done += follow;
    }
    const int64_t before = read_bytes.fetch_add(read);
    if ((before + read) / kMostResidentBytes > before / kMostResidentBytes) files.release();
    if (base != nullptr)
      sums[size_t(index)] = checksum_of(std::as_bytes(std::span(tile.values).first(size_t(count))));
    if (executor == nullptr || begin == end) return {};
    if (is_packed(weight) && packed_as(*tensor, *place->source) == weight.format)
      return write_as_it_is(*executor, model.params[place->weight].param, *place, *tensor, begin, end, tile);
    tile.values.erase(tile.values.begin(), tile.values.begin() + (begin - first));
    return write_param(*executor, model.params[place->weight], place->first + begin, tile);
  };
  SLUICE_TRY(for_each_job(int64_t(parts.size()), total, run, [] {}));
  if (base == nullptr) return {};
  Checksummer products, tables;
  products.add(turned.value().to_text());
  for (size_t p = 0; p < sums.size(); ++p)
    (is_table(model.weights[parts[p].place->weight]) ? tables : products).add(sums[p].to_text());
  *base = {products.value(), tables.value()};
  return {};
}

}  // namespace

Status load_weights(const BuiltProgram& model, const std::filesystem::path& checkpoint, Executor& executor,
                    Held held, BaseValues* sums) {
  return read_weights(model, checkpoint, &executor, held, sums);
}

Result<BaseValues> values_in(const ModelSpec& spec, const std::filesystem::path& folder, Held held) {
  BuiltProgram model;  // of the table alone
  model.weights = weights_of(spec);
  BaseValues out;
  SLUICE_TRY(read_weights(model, folder, nullptr, held, &out));
  return out;
}

Status check_base(const std::filesystem::path& adapter, const std::filesystem::path& base,
                  const std::optional<BaseValues>& values) {
  const auto files = TensorFiles::open(adapter);
  if (!files.ok() || !values) return {};  // who reads it says so
  const auto check = [&](const char* name, std::string_view what, const Checksum& sum) -> Status {
    const std::string made_for = files->metadata(name);
    if (made_for.empty() || made_for == sum.to_text()) return {};
    if (!Checksum::parse(made_for))
      return error("{}: {} in the header of its weights is no checksum", adapter.string(), name);
    return error(
        "{}: it was trained beside another base: {} of that one have the checksum {}, those of {} {}. "
        "adapter.base (--base) names the folder of its own",
        adapter.string(), what, made_for, base.string(), sum.to_text());
  };
  SLUICE_TRY(check(kBaseValues, "the values", values->products));
  return values->tables ? check(kBaseTables, "the rows of the embedding", *values->tables) : Status();
}

namespace {

// The checksum of a base's tables, of which a program that generates has read some at most.
Result<std::optional<Checksum>> tables_of(const BuiltProgram& model, const std::filesystem::path& base,
                                          const std::filesystem::path& adapter) {
  const auto files = TensorFiles::open(adapter);
  if (!files.ok() || files->metadata(kBaseTables).empty()) return std::optional<Checksum>();
  BuiltProgram tables;  // of the table alone
  tables.weights = model.looked_up;
  std::copy_if(model.weights.begin(), model.weights.end(), std::back_inserter(tables.weights), is_table);
  BaseValues values;
  SLUICE_TRY(read_weights(tables, base, nullptr, Held::Base, &values));
  return values.tables;
}

}  // namespace

namespace {

// Elements [first, first + values.size()) of a parameter, as products in `compute` take them. REQUIRES: of
// one that is packed they are whole blocks.
Status read_param(const Executor& executor, ObjectId id, int64_t first, DType compute, PackedBlocks& packed,
                  std::span<float> values) {
  const Object& object = executor.program().object(id);
  const NumberFormat& format = object.format;
  const auto count = int64_t(values.size());
  const NumberFormat codes = format.type;
  packed.elements.resize(size_t(codes.bytes(count)));
  SLUICE_TRY(executor.read(id, packed.elements, codes.bytes(first)));
  if (format.block > 0) {
    packed.scales.resize(size_t(count / format.block * size_of(format.scale)));
    SLUICE_TRY(executor.read(id, packed.scales,
                             codes.bytes(object.elements()) + first / format.block * size_of(format.scale)));
    unpack(format, packed, 0, values);
    if (compute == DType::BF16)
      for (float& value : values) value = float(Bf16(value));
    return {};
  }
  with_type(format.type, [&]<class T>(T) {
    const auto* from = reinterpret_cast<const T*>(packed.elements.data());
    std::transform(from, from + count, values.begin(), [](T v) { return float(v); });
  });
  return {};
}

// Norms of rows of a weight of the same layer become the values of `m`.
Status write_norms(const BuiltProgram& model, size_t m, Executor& executor) {
  const Weight& weight = model.weights[m];
  size_t base = 0;
  while (model.weights[base].layer != weight.layer || model.weights[base].role != weight.norms->of) ++base;
  const int64_t columns = model.weights[base].sources.front().cols, rows = weight.elements();
  const auto b = std::find_if(model.weights.begin(), model.weights.end(), [&](const Weight& w) {
    return w.layer == weight.layer && w.adds && w.adds->magnitudes == weight.role;
  });
  const DType compute =
      executor.program().object(model.params[size_t(b - model.weights.begin())].param).format.type;
  const int64_t step = std::max(kTileElements / columns, int64_t{1});
  const auto run = [&](int64_t index, Tile& tile) -> Status {
    const int64_t first = index * step, count = std::min(step, rows - first);
    std::vector<float> read(size_t(count * columns));
    // Parts of the base follow each other.
    int64_t at = (weight.norms->first + first) * columns;
    for (size_t part = base, done = 0; done < read.size(); ++part) {
      const int64_t of_part = model.weights[part].elements(), here = std::max(of_part - at, int64_t{0});
      const auto values = std::span(read).subspan(done, std::min(size_t(here), read.size() - done));
      if (!values.empty())
        SLUICE_TRY(read_param(executor, model.params[part].param, at, compute, tile.packed, values));
      done += values.size();
      at = std::max(at - of_part, int64_t{0});
    }
    tile.values.clear();
    for (int64_t row = 0; row < count; ++row) {
      double squares = 0;
      for (const float x : std::span(read).subspan(size_t(row * columns), size_t(columns)))
        squares += double(x) * double(x);
      tile.values.push_back(float(std::sqrt(squares)));
    }
    return write_param(executor, model.params[m], first, tile);
  };
  return for_each_job((rows + step - 1) / step, rows * columns * 4, run, [] {});
}

// Values that begin as the norms of others' rows get these.
Status write_norms(const BuiltProgram& model, Executor& executor) {
  for (size_t w = 0; w < model.weights.size(); ++w) {
    if (model.weights[w].norms) SLUICE_TRY(write_norms(model, w, executor));
  }
  return {};
}

}  // namespace

Result<std::optional<BaseValues>> load_model(const BuiltProgram& model, const WeightsFrom& from,
                                             Executor& executor) {
  std::optional<BaseValues> values;
  if (!has_adapters(model.weights)) {
    if (!from.folder.empty()) SLUICE_TRY(load_weights(model, from.folder, executor, Held::Whole));
    return values;
  }
  if (!from.folder.empty())
    SLUICE_TRY(load_weights(model, from.folder, executor, Held::Base, &values.emplace()));
  if (from.adapter.empty()) {
    SLUICE_TRY(write_norms(model, executor));
    return values;
  }
  if (values && !model.looked_up.empty()) {
    SLUICE_ASSIGN(values->tables, tables_of(model, from.folder, from.adapter));
  }
  SLUICE_TRY(check_base(from.adapter, from.folder, values));
  SLUICE_TRY(load_weights(model, from.adapter, executor, Held::Adapter));
  return values;
}

Status save_weights(const BuiltProgram& model, const std::filesystem::path& path, const Executor& executor) {
  const auto written =
      write_tensors(layout_of(model, false).weights, path, {{"format", "pt"}}, reader_of(executor));
  return written.ok() ? Status() : Status(written.error());
}

}  // namespace sluice::core

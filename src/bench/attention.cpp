// SPDX-License-Identifier: Apache-2.0
#include "bench/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/parallel.h"
#include "base/philox.h"
#include "base/stopwatch.h"
#include "bench/results.h"
#include "host/host_memory.h"
#include "ops/op.h"

namespace sluice::core {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The same numbers for both: around zero, up to 1.
std::vector<float> values(uint64_t key, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = 2 * uniform_open(philox(key, i, 0).v[0]) - 1;
  return out;
}

// Arrays one after another in the device's arena of a backend of its own; those of floats are of one type,
// from and to which they are converted.
class Arena {
 public:
  Arena(Backend& backend, DType dtype) : backend_(backend), dtype_(dtype) {}

  size_t add(int64_t bytes) {
    offsets_.push_back(align_up(bytes_, backend_.alignment()));
    sizes_.push_back(bytes);
    bytes_ = offsets_.back() + bytes;
    return offsets_.size() - 1;
  }
  size_t add_floats(int64_t count) { return add(count * size_of(dtype_)); }
  int64_t bytes() const { return bytes_; }

  Status reserve() {
    BytesByTier bytes;
    bytes[kDevice] = bytes_;
    SLUICE_ASSIGN(const Arenas arenas, backend_.reserve(bytes));
    base_ = arenas[kDevice];
    return {};
  }
  Buffer whole(size_t array) const { return {base_ + offsets_[array], sizes_[array]}; }
  // The i-th of `parts` equal pieces.
  Buffer part(size_t array, int64_t i, int64_t parts) const {
    const int64_t bytes = sizes_[array] / parts;
    return {base_ + offsets_[array] + i * bytes, bytes};
  }
  Status write(size_t array, std::span<const float> from) {
    return with_type(dtype_, [&]<class T>(T) {
      std::vector<T> converted;
      converted.reserve(from.size());
      for (const float value : from) converted.push_back(T(value));
      return upload<T>(array, converted);
    });
  }
  template <class T>
  Status upload(size_t array, std::span<const T> from) {
    return backend_.upload({kDevice, offsets_[array]}, reinterpret_cast<const std::byte*>(from.data()),
                           int64_t(from.size_bytes()));
  }
  Result<std::vector<float>> read(size_t array) {
    return with_type(dtype_, [&]<class T>(T) -> Result<std::vector<float>> {
      std::vector<T> found(size_t(sizes_[array]) / sizeof(T));
      SLUICE_TRY(backend_.download(reinterpret_cast<std::byte*>(found.data()), {kDevice, offsets_[array]},
                                   sizes_[array]));
      std::vector<float> out;
      out.reserve(found.size());
      for (const T value : found) out.push_back(float(value));
      return out;
    });
  }

 private:
  Backend& backend_;
  DType dtype_;
  std::vector<int64_t> offsets_, sizes_;
  int64_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

struct OpOn {
  Op op;
  std::vector<Buffer> operands;
};

Status run_all(Backend& backend, std::span<const OpOn> work, const Buffer& workspace) {
  SLUICE_TRY(backend.begin(uint32_t(work.size()), false));
  for (uint32_t i = 0; i < work.size(); ++i) {
    const Launch launch{&work[i].op, work[i].operands, workspace};
    SLUICE_TRY(backend.submit({i, backend.lanes().compute(), {}, launch, 0}));
  }
  if (const auto fault = backend.finish(nullptr)) return fault->error;
  return {};
}

struct Outputs {
  std::vector<float> o, dq, dk, dv;
};

// Times passes after those to warm up, before the first of which `begin` is called.
Status time_passes(
    const BenchOptions& options, const std::atomic<bool>& interrupted, AttentionTimes& out,
    const std::function<Status()>& forward, const std::function<Status()>& backward,
    const std::function<void()>& begin = [] {}) {
  std::vector<double> forward_s, backward_s;
  for (int64_t i = 0; i < options.warm_up + options.steps; ++i) {
    if (interrupted) return error(ErrorKind::Cancelled, "interrupted");
    if (i == options.warm_up) begin();
    Stopwatch watch;
    SLUICE_TRY(forward());
    const double f = watch.lap();
    SLUICE_TRY(backward());
    const double b = watch.lap();
    if (i < options.warm_up) continue;
    forward_s.push_back(f);
    backward_s.push_back(b);
  }
  out.forward = measured_of(forward_s), out.backward = measured_of(backward_s);
  return {};
}

Status check_room(int64_t bytes, const Machine& machine) {
  const int64_t room = machine.traits().shares_cores ? available_bytes() : machine.device_total_bytes;
  if (bytes <= room) return {};
  return Error{fmt::format("takes {}, {} are left", format_bytes(bytes), format_bytes(room)),
               ErrorKind::DoesNotFit};
}

// The ops of steps.
Result<Outputs> run_fused(const AttentionCell& c, const Machine& machine, const BenchOptions& options,
                          const std::atomic<bool>& interrupted, AttentionTimes& out) {
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, machine.make());
  const AttnShape shape{c.rows, c.length, c.length, 1, 1, c.head_dim, 0, false, c.dtype};
  const Op forward = AttnFwd{shape, c.dtype, false}, backward = AttnBwd{shape, c.dtype, false, false};
  const int64_t n = shape.q_elements();
  Arena arena(*backend, c.dtype);
  const size_t q = arena.add_floats(n), kv = arena.add_floats(2 * n), pos = arena.add(4 * shape.tokens()),
               o = arena.add_floats(n), lse = arena.add(shape.lse_elements() * int64_t{sizeof(float)});
  out.kept_bytes = arena.bytes();
  const size_t d_o = arena.add_floats(n), dq = arena.add_floats(n), dkv = arena.add_floats(2 * n),
               workspace =
                   arena.add(std::max(backend->workspace_bytes(forward), backend->workspace_bytes(backward)));
  out.peak_bytes = arena.bytes();
  SLUICE_TRY(check_room(arena.bytes(), machine));
  SLUICE_TRY(arena.reserve());
  const std::vector<SharedOp> ops{forward, backward};
  SLUICE_TRY(backend->prepare(ops));
  const std::vector<float> k = values(2, n), v = values(3, n);
  std::vector<float> both(size_t(2 * n));
  const auto d = size_t(c.head_dim);
  for (size_t t = 0; t < size_t(shape.tokens()); ++t) {
    std::copy_n(&k[t * d], d, &both[2 * t * d]);
    std::copy_n(&v[t * d], d, &both[(2 * t + 1) * d]);
  }
  std::vector<int32_t> positions(size_t(shape.tokens()));
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = int32_t(int64_t(t) % c.length);
  SLUICE_TRY(arena.write(q, values(1, n)));
  SLUICE_TRY(arena.write(kv, both));
  SLUICE_TRY(arena.upload<int32_t>(pos, positions));
  SLUICE_TRY(arena.write(d_o, values(4, n)));
  const auto run = [&](const Op& op, std::initializer_list<size_t> arrays) {
    OpOn work{op, {}};
    for (const size_t array : arrays) work.operands.push_back(arena.whole(array));
    return run_all(*backend, std::span(&work, 1), arena.whole(workspace));
  };
  SLUICE_TRY(time_passes(
      options, interrupted, out,
      [&] {
        return run(forward, {q, kv, pos, o, lse});
      },
      [&] {
        return run(backward, {q, kv, pos, o, lse, d_o, dq, dkv});
      }));
  Outputs found;
  SLUICE_ASSIGN(found.o, arena.read(o));
  SLUICE_ASSIGN(found.dq, arena.read(dq));
  SLUICE_ASSIGN(both, arena.read(dkv));
  found.dk.resize(size_t(n)), found.dv.resize(size_t(n));
  for (size_t t = 0; t < size_t(shape.tokens()); ++t) {
    std::copy_n(&both[2 * t * d], d, &found.dk[t * d]);
    std::copy_n(&both[(2 * t + 1) * d], d, &found.dv[t * d]);
  }
  return found;
}

// exp(x) of x <= 0, to about 1e-7 of itself: 2^n times a Taylor polynomial of the rest, in what a compiler
// makes vectors of. The C library's would make the naive one look slower than it has to be.
inline float exp_negative(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 x 2^23: what is added to it is rounded to a whole number
  const float y = std::max(x * 1.44269504f, -126.0f), shifted = y + kShift, f = y - (shifted - kShift);
  float p = 1.5403530e-4f;
  for (const float c : {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 0.24022651f, 0.69314718f, 1.0f})
    p = p * f + c;
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kShift);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + n * (1 << 23));
}

// Lanes side by side, so that sums are vectors, too.
constexpr int64_t kLanes = 16;
template <class F>
float sum_lanes(int64_t count, F&& value) {
  float lanes[kLanes] = {}, sum = 0;
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += value(j + l);
  }
  for (; j < count; ++j) sum += value(j);
  for (const float lane : lanes) sum += lane;
  return sum;
}

// Row i of causal scores becomes weights; what a query may not look at is 0.
void softmax_row(float* row, int64_t i, int64_t length, float scale) {
  float lanes[kLanes], most = row[0];
  std::fill(std::begin(lanes), std::end(lanes), most);
  int64_t j = 0;
  for (; j + kLanes <= i + 1; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = std::max(lanes[l], row[j + l]);
  }
  for (; j <= i; ++j) most = std::max(most, row[j]);
  for (const float lane : lanes) most = std::max(most, lane);
  for (j = 0; j <= i; ++j) row[j] = exp_negative((row[j] - most) * scale);
  const float factor = 1 / sum_lanes(i + 1, [&](int64_t k) { return row[k]; });
  for (j = 0; j <= i; ++j) row[j] *= factor;
  std::fill(row + i + 1, row + length, 0.0f);
}

// From the gradients of weights to those of scores, in place.
void softmax_backward_row(float* gradients, const float* weights, int64_t i, int64_t length, float scale) {
  const float sum = sum_lanes(i + 1, [&](int64_t k) { return gradients[k] * weights[k]; });
  for (int64_t j = 0; j <= i; ++j) gradients[j] = weights[j] * (gradients[j] - sum) * scale;
  std::fill(gradients + i + 1, gradients + length, 0.0f);
}

// Products by the backend's own, over all scores; the softmax between them in main memory.
Result<Outputs> run_naive(const AttentionCell& c, const Machine& machine, const BenchOptions& options,
                          const std::atomic<bool>& interrupted, AttentionTimes& out) {
  SLUICE_ASSIGN(const std::unique_ptr<Backend> backend, machine.make());
  const int64_t n = c.rows * c.length * c.head_dim, scores = c.rows * c.length * c.length;
  const Op to_scores = Linear{c.length, c.head_dim, c.length, DType::F32},
           from_scores = LinearDgrad{c.length, c.head_dim, c.length, DType::F32, false},
           across = LinearWgrad{c.length, c.head_dim, c.length, DType::F32, DType::F32, false};
  Arena arena(*backend, DType::F32);
  const size_t q = arena.add_floats(n), k = arena.add_floats(n), v = arena.add_floats(n),
               o = arena.add_floats(n), p = arena.add_floats(scores);
  out.kept_bytes = arena.bytes();
  int64_t workspace_bytes = 0;
  for (const Op& op : {to_scores, from_scores, across}) {
    workspace_bytes = std::max(workspace_bytes, backend->workspace_bytes(op));
  }
  const size_t d_o = arena.add_floats(n), dq = arena.add_floats(n), dk = arena.add_floats(n),
               dv = arena.add_floats(n), ds = arena.add_floats(scores),
               workspace = arena.add(workspace_bytes);
  out.peak_bytes = arena.bytes();
  SLUICE_TRY(check_room(arena.bytes(), machine));
  SLUICE_TRY(arena.reserve());
  const std::vector<SharedOp> ops{to_scores, from_scores, across};
  SLUICE_TRY(backend->prepare(ops));
  for (const auto& [array, key] : {std::pair{q, 1}, {k, 2}, {v, 3}, {d_o, 4}}) {
    SLUICE_TRY(arena.write(array, values(uint64_t(key), n)));
  }
  double products_s = 0, softmax_s = 0;
  // `op` on the pieces of three arrays that belong to each sequence.
  const auto product = [&](const Op& op, size_t a, size_t b, size_t to) -> Status {
    const Stopwatch watch;
    std::vector<OpOn> work;
    for (int64_t r = 0; r < c.rows; ++r) {
      work.push_back({op, {arena.part(a, r, c.rows), arena.part(b, r, c.rows), arena.part(to, r, c.rows)}});
    }
    SLUICE_TRY(run_all(*backend, work, arena.whole(workspace)));
    products_s += watch.seconds();
    return {};
  };
  const float scale = 1 / std::sqrt(float(c.head_dim));
  constexpr int64_t kRowsAtOnce = 64;
  const auto by_row = [&](const std::function<void(int64_t row, int64_t i)>& f) {
    const Stopwatch watch;
    const int64_t rows = c.rows * c.length;
    for_each_parallel((rows + kRowsAtOnce - 1) / kRowsAtOnce, search_threads(), [&](int64_t block) {
      for (int64_t r = block * kRowsAtOnce; r < std::min(rows, (block + 1) * kRowsAtOnce); ++r)
        f(r, r % c.length);
    });
    softmax_s += watch.seconds();
  };
  float* const weights = arena.whole(p).as<float>();
  float* const gradients = arena.whole(ds).as<float>();
  const auto forward = [&]() -> Status {
    SLUICE_TRY(product(to_scores, q, k, p));
    by_row([&](int64_t row, int64_t i) { softmax_row(weights + row * c.length, i, c.length, scale); });
    return product(from_scores, p, v, o);
  };
  const auto backward = [&]() -> Status {
    SLUICE_TRY(product(to_scores, d_o, v, ds));
    SLUICE_TRY(product(across, p, d_o, dv));
    by_row([&](int64_t row, int64_t i) {
      softmax_backward_row(gradients + row * c.length, weights + row * c.length, i, c.length, scale);
    });
    SLUICE_TRY(product(from_scores, ds, k, dq));
    return product(across, ds, q, dk);
  };
  SLUICE_TRY(time_passes(options, interrupted, out, forward, backward, [&] { products_s = softmax_s = 0; }));
  const auto passes = double(options.steps);
  out.products_s = products_s / passes, out.softmax_s = softmax_s / passes;
  Outputs found;
  SLUICE_ASSIGN(found.o, arena.read(o));
  SLUICE_ASSIGN(found.dq, arena.read(dq));
  SLUICE_ASSIGN(found.dk, arena.read(dk));
  SLUICE_ASSIGN(found.dv, arena.read(dv));
  return found;
}

void compare(AttentionResult& result, const Outputs& a, const Outputs& b) {
  result.difference = result.largest = 0;
  for (const auto& [x, y] : {std::pair{&a.o, &b.o}, {&a.dq, &b.dq}, {&a.dk, &b.dk}, {&a.dv, &b.dv}}) {
    for (size_t i = 0; i < x->size(); ++i) {
      result.difference = std::max(result.difference, double(std::abs((*x)[i] - (*y)[i])));
      result.largest = std::max(result.largest, double(std::abs((*y)[i])));
    }
  }
}

}  // namespace

Result<AttentionResult> run_attention(const AttentionCell& cell, const Machine& machine,
                                      const BenchOptions& options, const std::atomic<bool>& interrupted,
                                      const std::function<void(const std::string& doing)>& say) {
  AttentionResult result{
      .cell = cell, .inputs = inputs_of(cell, machine, options), .difference = kUnknown, .largest = kUnknown};
  const Stamp stamp = stamp_on(machine.description);
  result.machine = stamp.machine, result.sluice = stamp.sluice;
  const auto attempt = [&](auto run, AttentionTimes& times) -> Result<Outputs> {
    auto found = run(cell, machine, options, interrupted, times);
    times.status = found.ok() ? "ok" : found.error().kind == ErrorKind::DoesNotFit ? "does not fit" : "error";
    times.message = found.ok() ? "" : found.message();
    return found;
  };
  say("as steps compute it");
  const auto fused = attempt(run_fused, result.fused);
  if (!fused.ok() && fused.error().kind == ErrorKind::Cancelled) return fused.error();
  if (!machine.traits().shares_cores) {
    result.naive.status = "not here";
    result.naive.message = "its softmax is computed in main memory, where this device's arena is not";
    return result;
  }
  say("with its scores in memory");
  const auto naive = attempt(run_naive, result.naive);
  if (!naive.ok() && naive.error().kind == ErrorKind::Cancelled) return naive.error();
  if (fused.ok() && naive.ok()) compare(result, *fused, *naive);
  return result;
}

Page attention_page(std::span<const AttentionResult> results) {
  Page page{
      .title = "Attention of one head",
      .legend = {"Causal. A cell is sequences x tokens, columns of the head, and the format of the fused "
                 "one: the ops of steps, which keep the logarithm of a row's sum. Naive, in f32: every "
                 "score is computed and kept, by the same products. Both compute the same, but for the "
                 "format: the difference is the largest of outputs and gradients."}};
  Section s{.key = "attention", .title = "Attention"};
  Table times{.key = "times", .title = "Times, means and standard deviations", .row_title = "cell"};
  times.note_key = "message", times.note_title = "";
  times.columns = {
      {"fused_forward_s", "fused forward", Form::Seconds}, {"fused_forward_s_deviation", "±", Form::Seconds},
      {"fused_backward_s", "backward", Form::Seconds},     {"fused_backward_s_deviation", "±", Form::Seconds},
      {"naive_forward_s", "naive forward", Form::Seconds}, {"naive_forward_s_deviation", "±", Form::Seconds},
      {"naive_backward_s", "backward", Form::Seconds},     {"naive_backward_s_deviation", "±", Form::Seconds},
      {"difference", "difference", Form::Number},          {"largest", "of at most", Form::Number}};
  Table memory{.key = "memory", .title = "Memory", .row_title = "cell"};
  memory.columns = {{"fused_kept_bytes", "fused, before backward", Form::Memory},
                    {"fused_peak_bytes", "peak", Form::Memory},
                    {"naive_kept_bytes", "naive, before backward", Form::Memory},
                    {"naive_peak_bytes", "peak", Form::Memory},
                    {"naive_per_square", "naive peak / (B S S)", Form::Number}};
  Table parts{.key = "parts", .title = "Naive attention by part, both passes", .row_title = "cell"};
  parts.columns = {{"products_s", "products", Form::Seconds},
                   {"softmax_s", "softmax", Form::Seconds},
                   {"products_flops", "products", Form::Flops},
                   {"softmax_flops", "softmax", Form::Flops}};
  parts.formulas = {
      "products: 6 x 2 B S S D, all scores; softmax: of B S (S + 1) / 2 scores a difference, a factor, an "
      "exponential, a sum and a quotient forward, and two products, a sum, a difference and a factor back"};
  Plot plot{.title = "Forward and backward pass",
            .x_label = "tokens",
            .y_label = "ms",
            .x_scale = Scale::PowersOfTwo,
            .y_scale = Scale::PowersOfTen};
  for (const AttentionResult& r : results) {
    const AttentionCell& c = r.cell;
    const std::string name = name_of(c);
    Row row{.name = name}, bytes{.name = name};
    for (const auto& [label, t] : {std::pair{"fused", &r.fused}, {"naive", &r.naive}}) {
      for (const Measured& m : {t->forward, t->backward}) {
        row.values.push_back(t->ok() ? std::optional(m.mean) : std::nullopt);
        row.values.push_back(t->ok() ? std::optional(m.deviation) : std::nullopt);
      }
      if (!t->ok())
        row.note += fmt::format("{}{}: {}: {}", row.note.empty() ? "" : "; ", label, t->status, t->message);
      for (const int64_t b : {t->kept_bytes, t->peak_bytes}) {
        bytes.values.push_back(b > 0 ? std::optional(double(b)) : std::nullopt);
      }
      const std::string line = fmt::format("{}, D {}, {}", label, c.head_dim, name_of(c.dtype));
      auto it = std::find_if(plot.series.begin(), plot.series.end(),
                             [&](const Series& x) { return x.name == line; });
      if (it == plot.series.end()) it = plot.series.insert(it, {.name = line, .points = {}, .marked = true});
      const double ms = t->ok() ? (t->forward.mean + t->backward.mean) * 1e3 : kUnknown;
      it->points.push_back({double(c.length), ms});
    }
    const bool both = std::isfinite(r.difference);
    row.values.push_back(both ? std::optional(r.difference) : std::nullopt);
    row.values.push_back(both ? std::optional(r.largest) : std::nullopt);
    const double square = double(c.rows) * double(c.length) * double(c.length), d = double(c.head_dim);
    bytes.values.push_back(r.naive.peak_bytes > 0 ? std::optional(double(r.naive.peak_bytes) / square)
                                                  : std::nullopt);
    times.rows.push_back(std::move(row));
    memory.rows.push_back(std::move(bytes));
    const double causal = double(c.rows) * double(c.length) * double(c.length + 1) / 2;
    if (r.naive.ok()) {
      parts.rows.push_back({name, {r.naive.products_s, r.naive.softmax_s, 6 * 2 * square * d, 10 * causal}});
    }
  }
  s.tables = {std::move(times), std::move(memory)};
  if (!parts.rows.empty()) s.tables.push_back(std::move(parts));
  s.plots.push_back(std::move(plot));
  page.sections.push_back(std::move(s));
  return page;
}

}  // namespace sluice::core

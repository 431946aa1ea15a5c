// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/base_files.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/stopwatch.h"
#include "checkpoint/found_tensor.h"
#include "io/direct_file.h"
#include "io/elements.h"

namespace sluice::core {
namespace {

// Ranges of a file that lie so close are read as one: as many bytes as are wanted lie between them at most.
constexpr int64_t kMostAround = 3;

class BaseFiles final : public DiskSource {
 public:
  static Result<std::shared_ptr<const DiskSource>> open(const BuiltProgram& model, const Plan& plan,
                                                        const std::filesystem::path& folder) {
    SLUICE_ASSIGN(TensorFiles tensors, TensorFiles::open(folder));
    std::shared_ptr<BaseFiles> out(new BaseFiles(std::move(tensors)));
    for (size_t w = 0; w < model.weights.size(); ++w) {
      const ObjectId object = model.params[w].param;
      const Home& home = plan.homes[object.value];
      if (home.on(kDisk))
        SLUICE_TRY(out->add(model.weights[w], model.program.object(object), home.offset(kDisk)));
    }
    std::ranges::sort(out->objects_, {}, &Placed::offset);
    return std::shared_ptr<const DiskSource>(std::move(out));
  }

  Status read(int64_t offset, std::span<std::byte> to) const override {
    const auto behind = std::ranges::upper_bound(objects_, offset, {}, &Placed::offset);
    SLUICE_CHECK(behind != objects_.begin(), "nothing lies at {} on the disk", offset);
    const Placed& object = *std::prev(behind);
    const int64_t begin = offset - object.offset, end = begin + int64_t(to.size());
    SLUICE_CHECK(end <= object.codes_bytes + object.scales_bytes, "{} bytes at {} of {}", to.size(), begin,
                 object.name);
    const int64_t codes = std::clamp<int64_t>(object.codes_bytes - begin, 0, int64_t(to.size()));
    if (codes > 0) SLUICE_TRY(read_codes(object, begin, to.first(size_t(codes))));
    if (codes == int64_t(to.size())) return {};
    return read_scales(object, begin + codes - object.codes_bytes, to.subspan(size_t(codes)));
  }

 private:
  explicit BaseFiles(TensorFiles tensors) : tensors_(std::move(tensors)) {}

  // A weight's source, and the tensor that has it.
  struct Part {
    WeightSource source;
    FoundTensor tensor;
  };
  struct Placed {
    std::string name;
    int64_t offset = 0;                         // on the disk
    int64_t codes_bytes = 0, scales_bytes = 0;  // one behind the other
    NumberFormat format;
    std::vector<Part> parts;
  };
  struct Place {
    const DirectFile* file;
    int64_t offset;
  };

  Status add(const Weight& weight, const Object& object, int64_t offset) {
    Placed placed{.name = object.name, .offset = offset, .format = object.format};
    placed.codes_bytes = NumberFormat(object.format.type).bytes(object.elements());
    placed.scales_bytes = object.bytes - placed.codes_bytes;
    for (const WeightSource& source : weight.sources) {
      SLUICE_ASSIGN(FoundTensor found, find_tensor(tensors_, source, weight.matrix));
      SLUICE_TRY(open_file(*found.tensor));
      if (found.packed) {
        for (const SafeTensor* tensor : found.packed->tensors()) SLUICE_TRY(open_file(*tensor));
      }
      placed.parts.push_back({source, std::move(found)});
    }
    objects_.push_back(std::move(placed));
    return {};
  }

  Status open_file(const SafeTensor& tensor) {
    const std::filesystem::path& path = *tensors_.place_of(tensor).file;
    if (files_.contains(path)) return {};
    SLUICE_ASSIGN(DirectFile file, DirectFile::open(path));
    files_.emplace(path, std::move(file));
    return {};
  }

  Status read_bytes(const SafeTensor& tensor, int64_t offset, std::span<std::byte> to) const {
    const TensorFiles::Place place = tensors_.place_of(tensor);
    return files_.at(*place.file).read(place.offset + offset, to);
  }

  // Calls f(part, first, end, done) for the elements [first, end) of each part that has some of [begin, end)
  // of the object, `done` elements behind its begin.
  template <class F>
  static Status for_each_part(const Placed& object, int64_t begin, int64_t end, F&& f) {
    int64_t first = 0;
    for (const Part& part : object.parts) {
      const int64_t next = first + part.source.elements();
      const int64_t from = std::max(begin, first), to = std::min(end, next);
      if (from < to) SLUICE_TRY(f(part, from - first, to - first, from - begin));
      first = next;
    }
    return {};
  }

  Status read_codes(const Placed& object, int64_t begin, std::span<std::byte> to) const {
    const NumberFormat codes = object.format.type;
    const int64_t first = codes.elements(begin), end = codes.elements(begin + int64_t(to.size()));
    return for_each_part(
        object, first, end, [&](const Part& part, int64_t from, int64_t until, int64_t done) -> Status {
          const auto own = to.subspan(size_t(codes.bytes(done)), size_t(codes.bytes(until - from)));
          if (part.tensor.packed) {
            SLUICE_TRY(read_elements_of(part, codes, from, until, own));
            part.tensor.packed->turn_codes(own);
            return Status();
          }
          return read_numbers(part, object.format.type, from, until, own);
        });
  }

  // Numbers of another type than the object's are rounded as they come.
  Status read_numbers(const Part& part, DType type, int64_t from, int64_t until,
                      std::span<std::byte> to) const {
    const TensorType there = part.tensor.info().type;
    const int64_t size = size_of(there);
    if ((there == TensorType::BF16 && type == DType::BF16) ||
        (there == TensorType::F32 && type == DType::F32))
      return read_elements_of(part, type, from, until, to);
    std::vector<std::byte> bytes(size_t((until - from) * size));
    std::vector<float> values;
    SLUICE_TRY(read_elements_of(part, size == 2 ? DType::BF16 : DType::F32, from, until, bytes));
    read_elements(there, bytes, values);
    round_elements(type == DType::BF16 ? TensorType::BF16 : TensorType::F32, values, bytes);
    std::ranges::copy(bytes, to.begin());
    return {};
  }

  // Rows that stand in another order in the file than here are read with what lies between them, where that
  // is little.
  Status read_elements_of(const Part& part, const NumberFormat& codes, int64_t from, int64_t until,
                          std::span<std::byte> to) const {
    const SafeTensor& tensor = *part.tensor.tensor;
    int64_t least = INT64_MAX, most = 0;
    std::vector<WeightSource::Stretch> stretches;
    for (int64_t at = from; at < until;) {
      stretches.push_back(part.source.stretch(at, until));
      const auto& [place, count] = stretches.back();
      least = std::min(least, place), most = std::max(most, place + count);
      at += count;
    }
    const auto byte_of = [&](int64_t element) { return codes.bytes(part.tensor.first + element); };
    const bool together = stretches.size() > 1 && most - least <= kMostAround * (until - from);
    std::vector<std::byte> all;
    if (together) {
      all.resize(size_t(codes.bytes(most - least)));
      SLUICE_TRY(read_bytes(tensor, byte_of(least), all));
    }
    for (const auto& [place, count] : stretches) {
      const auto own = to.first(size_t(codes.bytes(count)));
      to = to.subspan(own.size());
      if (together) {
        std::copy_n(all.begin() + codes.bytes(place - least), own.size(), own.begin());
      } else {
        SLUICE_TRY(read_bytes(tensor, byte_of(place), own));
      }
    }
    return {};
  }

  // Bytes of scales from `begin` on: whole ones are read, and what is asked for is taken of them.
  Status read_scales(const Placed& object, int64_t begin, std::span<std::byte> to) const {
    const int64_t size = size_of(object.format.scale), block = object.format.block;
    const int64_t first = begin / size, end = (begin + int64_t(to.size()) + size - 1) / size;
    std::vector<std::byte> all, some;
    const auto read = [&](const SafeTensor& tensor, int64_t offset, std::span<std::byte> bytes) {
      return read_bytes(tensor, offset, bytes);
    };
    const auto add = [&](const Part& part, int64_t from, int64_t until, int64_t) -> Status {
      for (int64_t at = from; at < until;) {
        const auto [place, count] = part.source.stretch(at, until);
        SLUICE_TRY(part.tensor.packed->read_scales(part.tensor.first + place, count, read, some));
        all.insert(all.end(), some.begin(), some.end());
        at += count;
      }
      return {};
    };
    SLUICE_TRY(for_each_part(object, first * block, end * block, add));
    std::copy_n(all.begin() + (begin - first * size), to.size(), to.begin());
    return {};
  }

  const TensorFiles tensors_;
  std::map<std::filesystem::path, DirectFile> files_;
  std::vector<Placed> objects_;  // by offset
};

}  // namespace

bool files_have(const ModelSpec& spec, const TensorFiles& files) {
  return std::ranges::all_of(weights_of(spec), [&](const Weight& weight) {
    return !may_stay_in_files(weight) || std::ranges::all_of(weight.sources, [&](const WeightSource& source) {
      const auto found = find_tensor(files, source, weight.matrix);
      if (!found.ok()) return false;
      return is_packed(weight) ? packed_as(*found, source) == weight.format
                               : !found->packed && !source.transposed;
    });
  });
}

Result<std::shared_ptr<const DiskSource>> open_base(const BuiltProgram& model, const Plan& plan,
                                                    const std::filesystem::path& folder) {
  return BaseFiles::open(model, plan, folder);
}

Result<double> measure_reads(const std::filesystem::path& folder, int64_t most_bytes, double most_seconds) {
  SLUICE_ASSIGN(const TensorFiles tensors, TensorFiles::open(folder));
  std::map<std::filesystem::path, int64_t> sizes;
  for (const std::string_view name : tensors.names()) {
    const SafeTensor& tensor = *tensors.find(name);
    const auto [path, offset] = tensors.place_of(tensor);
    int64_t& end = sizes[*path];
    end = std::max(end, offset + int64_t(tensor.bytes.size()));
  }
  if (sizes.empty()) return error("{}: there is no tensor in it", folder.string());
  const auto largest = std::ranges::max_element(sizes, {}, [](const auto& s) { return s.second; });
  class OneFile final : public DiskSource {
   public:
    explicit OneFile(DirectFile file) : file_(std::move(file)) {}
    Status read(int64_t offset, std::span<std::byte> to) const override { return file_.read(offset, to); }

   private:
    const DirectFile file_;
  };
  SLUICE_ASSIGN(DirectFile opened, DirectFile::open(largest->first));
  DiskReaders file(std::make_shared<const OneFile>(std::move(opened)));
  std::vector<std::byte> bytes(size_t(std::min<int64_t>(largest->second, kDiskReaders * kDiskPieceBytes)));
  const Stopwatch watch;
  int64_t read = 0;
  while (read < most_bytes && watch.seconds() < most_seconds) {
    // Where the file is small, from its begin again.
    const int64_t at = read % (largest->second - int64_t(bytes.size()) + 1);
    SLUICE_TRY(file.read(at, bytes));
    read += int64_t(bytes.size());
  }
  // Two digits: starts that measure about the same have the same plan.
  const double rate = double(read) / std::max(1e-9, watch.seconds());
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 1);
  return std::round(rate / unit) * unit;
}

}  // namespace sluice::core

// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/write.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "checkpoint/compact.h"
#include "io/elements.h"
#include "io/shards.h"

namespace sluice::core {
namespace fs = std::filesystem;
namespace {

// Read at a time.
constexpr int64_t kPieceBytes = 4 << 20;
// Turned at a time: an expert of gpt-oss-20b, of 32 MiB in bf16, is read twice. What a process holds beside
// its arenas has room for little more.
constexpr int64_t kTurnedBytes = 16 << 20;
// Columns that are turned together, so that where they go stays in a cache.
constexpr int64_t kTileColumns = 64;

Error of_tensor(const TensorInfo& tensor, Error e) {
  e.details.emplace_back("tensor", tensor.name);
  return e;
}

// Elements in the number format of a tensor.
class Converter {
 public:
  // `first` is the index of the first element. What is returned holds until the next call.
  Result<std::span<const std::byte>> convert(const StoredTensor& tensor, int64_t first,
                                             std::span<const std::byte> piece) {
    const TensorType to = tensor.info.type;
    TensorInfo source = tensor.info;
    source.type = tensor.from;
    SLUICE_TRY(check_values(source, tensor.never_negative, first, piece));
    if (tensor.from == to) return piece;
    read_elements(tensor.from, piece, values_);
    return round(tensor.info, first);
  }

  // The same of masters: the piece of parameters, then that of their residuals, which may lie where the other
  // did.
  void take_parameters(std::span<const std::byte> piece) { parameters_.assign(piece.begin(), piece.end()); }
  Result<std::span<const std::byte>> join(const StoredTensor& tensor, int64_t first,
                                          std::span<const std::byte> residuals) {
    join_masters(parameters_, residuals, values_);
    TensorInfo joined = tensor.info;
    joined.type = TensorType::F32;
    SLUICE_TRY(check_values(joined, tensor.never_negative, first, std::as_bytes(std::span(values_))));
    return round(tensor.info, first);
  }

 private:
  // `values_`, of elements from `first` on.
  Result<std::span<const std::byte>> round(const TensorInfo& tensor, int64_t first) {
    const TensorType to = tensor.type;
    const int64_t bad = round_elements(to, values_, bytes_);
    if (bad < 0) return std::span<const std::byte>(bytes_);
    const float value = values_[size_t(bad)];
    return of_tensor(
        tensor, error("tensor {}: element {} is {}, which {} has no number for: it would become infinite",
                      tensor.name, first + bad, value, name_of(to)));
  }

  std::vector<float> values_;
  std::vector<std::byte> bytes_, parameters_;
};

// Called with what is written of a tensor, and the bytes that were read for it.
using WritePiece = std::function<Status(std::span<const std::byte>, int64_t)>;

// Rows of one of a tensor's matrices: `first` and `count` - 1 more, which are columns here.
struct TurnedRows {
  int64_t matrix, first, count;
};

// Turns the columns that are wanted of consecutive elements of a source, from `begin` on.
template <int64_t size>
void turn(std::span<const std::byte> piece, int64_t begin, const WeightSource& source,
          const TurnedRows& wanted, std::span<std::byte> out) {
  const int64_t columns = source.cols, rows = source.matrix_rows(), top = wanted.matrix * rows;
  const int64_t end = begin + int64_t(piece.size()) / size, first_row = begin / columns;
  std::vector<int64_t> places;  // of the rows, in the matrix
  for (int64_t row = first_row; row * columns < end; ++row)
    places.push_back(source.stretch(row * columns, (row + 1) * columns).at / columns - top);
  for (int64_t tile = 0; tile < wanted.count; tile += kTileColumns) {
    for (size_t r = 0; r < places.size(); ++r) {
      const int64_t at = (first_row + int64_t(r)) * columns + wanted.first;
      const int64_t from = std::max(begin, at + tile);
      const int64_t to = std::min(end, at + std::min(wanted.count, tile + kTileColumns));
      for (int64_t e = from; e < to; ++e)
        std::memcpy(out.data() + ((e - at) * rows + places[r]) * size, piece.data() + (e - begin) * size,
                    size_t(size));
    }
  }
}

// Their bytes, from the parts of the tensor's sources.
Status gather_columns(const StoredTensor& tensor, const std::vector<StoredPart>& parts,
                      const PartReader& reader, int64_t size, const TurnedRows& wanted,
                      std::vector<std::byte>& out) {
  const int64_t rows = tensor.turned.front().matrix_rows();
  out.resize(size_t(wanted.count * rows * size));
  for (const StoredPart& part : parts) {
    const WeightSource& source = tensor.turned[part.source];
    if (source.first_row / rows != wanted.matrix) continue;
    for (int64_t done = 0; done < part.bytes; done += kPieceBytes) {
      const int64_t bytes = std::min(kPieceBytes, part.bytes - done);
      SLUICE_ASSIGN(const std::span<const std::byte> piece, reader(part, done, bytes));
      const auto turn_sized = size == 4 ? turn<4> : size == 2 ? turn<2> : turn<1>;
      turn_sized(piece, part.element + done / size, source, wanted, out);
    }
  }
  return {};
}

// As many rows at a time as may be turned: for each all parts of a matrix are gone through. They are written
// by the piece.
Status write_turned(const StoredTensor& tensor, const PartReader& reader, Converter& converter,
                    const WritePiece& write) {
  const WeightSource& any = tensor.turned.front();
  const int64_t columns = any.cols, rows = any.matrix_rows(), size = size_of(tensor.from);
  const int64_t turned = (tensor.as_written ? 0 : size) + (tensor.residuals.empty() ? 0 : 1);
  const int64_t most = std::max<int64_t>(1, kTurnedBytes / (rows * turned));
  const int64_t few = std::max<int64_t>(1, kPieceBytes / (rows * size_of(TensorType::F32)));
  int64_t read = 0;
  for (const auto* parts : {&tensor.parts, &tensor.residuals}) {
    for (const StoredPart& part : *parts) read += part.bytes;
  }
  std::vector<std::byte> own, beside;
  const int64_t matrices = any.all_rows() / rows;
  for (int64_t row = 0; row < matrices * columns;) {
    const TurnedRows here{row / columns, row % columns, std::min(most, columns - row % columns)};
    if (!tensor.as_written) SLUICE_TRY(gather_columns(tensor, tensor.parts, reader, size, here, own));
    if (!tensor.residuals.empty())
      SLUICE_TRY(gather_columns(tensor, tensor.residuals, reader, 1, here, beside));
    for (int64_t done = 0; done < here.count; done += few) {
      const int64_t begin = done * rows, elements = std::min(few, here.count - done) * rows;
      const int64_t element = row * rows + begin;
      std::span<const std::byte> piece = own;
      if (tensor.as_written) {
        SLUICE_ASSIGN(piece, reader(tensor.parts.front(), element * size, elements * size));
      } else {
        piece = piece.subspan(size_t(begin * size), size_t(elements * size));
      }
      if (tensor.residuals.empty()) {
        SLUICE_ASSIGN(piece, converter.convert(tensor, element, piece));
      } else {
        converter.take_parameters(piece);
        const auto residuals = std::span<const std::byte>(beside).subspan(size_t(begin), size_t(elements));
        SLUICE_ASSIGN(piece, converter.join(tensor, element, residuals));
      }
      SLUICE_TRY(write(piece, std::exchange(read, 0)));
    }
    row += here.count;
  }
  return {};
}

}  // namespace

Status check_values(const TensorInfo& tensor, bool never_negative, int64_t first,
                    std::span<const std::byte> bytes) {
  if (!is_weight_type(tensor.type)) return {};
  const int64_t infinite = first_not_finite(tensor.type, bytes);
  const int64_t at = infinite < 0 && never_negative ? first_negative(tensor.type, bytes) : infinite;
  if (at < 0) return {};
  std::vector<float> value;
  read_elements(tensor.type, bytes.subspan(size_t(at * size_of(tensor.type)), size_t(size_of(tensor.type))),
                value);
  return of_tensor(tensor, error("tensor {}: element {} is {}; {}", tensor.name, first + at, value[0],
                                 infinite < 0 ? "a mean of squares is never negative"
                                              : "only finite values can be trained on"));
}

std::string_view type_in_config(TensorType type) {
  SLUICE_CHECK(is_weight_type(type), "{} is no type of weights", name_of(type));
  return type == TensorType::F32 ? "float32" : type == TensorType::BF16 ? "bfloat16" : "float16";
}

Result<FileSum> write_tensors(std::span<const StoredTensor> tensors, const fs::path& path,
                              const Metadata& metadata, const PartReader& reader,
                              const PieceProgress& progress) {
  std::vector<TensorInfo> infos;
  for (const StoredTensor& tensor : tensors) infos.push_back(tensor.info);
  SLUICE_ASSIGN(SafeTensorsWriter writer, SafeTensorsWriter::create(path, infos, metadata));
  Converter converter;
  for (const StoredTensor& tensor : tensors) {
    SLUICE_CHECK(
        tensor.residuals.empty() || !tensor.turned.empty() || tensor.residuals.size() == tensor.parts.size(),
        "{}: {} parts, {} residuals", tensor.info.name, tensor.parts.size(), tensor.residuals.size());
    int64_t written = 0;
    const auto write = [&](std::span<const std::byte> piece, int64_t read) -> Status {
      SLUICE_TRY(writer.write(tensor.info.name, written, piece));
      written += int64_t(piece.size());
      return progress ? progress(read) : Status();
    };
    if (!tensor.turned.empty() && !(tensor.as_written && tensor.residuals.empty())) {
      SLUICE_TRY(write_turned(tensor, reader, converter, write));
      continue;
    }
    for (size_t p = 0; p < tensor.parts.size(); ++p) {
      const StoredPart& part = tensor.parts[p];
      if (!tensor.residuals.empty()) {
        const StoredPart& residual = tensor.residuals[p];
        SLUICE_ASSIGN(std::span<const std::byte> piece, reader(part, 0, part.bytes));
        converter.take_parameters(piece);
        SLUICE_ASSIGN(piece, reader(residual, 0, residual.bytes));
        SLUICE_ASSIGN(piece, converter.join(tensor, written / size_of(tensor.info.type), piece));
        SLUICE_TRY(write(piece, part.bytes + residual.bytes));
        continue;
      }
      for (int64_t done = 0; done < part.bytes; done += kPieceBytes) {
        const int64_t count = std::min(kPieceBytes, part.bytes - done);
        SLUICE_ASSIGN(std::span<const std::byte> piece, reader(part, done, count));
        SLUICE_ASSIGN(piece, converter.convert(tensor, written / size_of(tensor.info.type), piece));
        SLUICE_TRY(write(piece, count));
      }
    }
  }
  const FileSum sum = writer.sum();
  SLUICE_TRY(writer.commit());
  return sum;
}

Result<FileSums> write_weights(const CheckpointLayout& layout, const fs::path& dir, Metadata metadata,
                               const PartReader& reader, const PieceProgress& progress) {
  metadata["format"] = "pt";
  const std::span<const StoredTensor> tensors(layout.weights);
  std::vector<TensorInfo> infos;
  for (const StoredTensor& tensor : tensors) infos.push_back(tensor.info);
  std::vector<Shard> shards = shards_of(infos, layout.shard_bytes);
  if (layout.held == Held::Adapter) shards = {{std::string(kAdapterName), 0, tensors.size()}};
  FileSums sums;
  for (const Shard& shard : shards) {
    SLUICE_ASSIGN(sums[shard.file], write_tensors(tensors.subspan(shard.first, shard.count), dir / shard.file,
                                                  metadata, reader, progress));
  }
  if (shards.size() > 1) {
    const std::string index = format_safetensors_index(infos, shards), name(kWeightsIndexName);
    SLUICE_TRY(write_file(dir / name, index));
    sums[name] = {int64_t(index.size()), checksum_of(index)};
  }
  return sums;
}

}  // namespace sluice::core

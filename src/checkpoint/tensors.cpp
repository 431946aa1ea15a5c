// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensors.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/compact.h"
#include "checkpoint/weights.h"
#include "checkpoint/write.h"
#include "io/elements.h"

namespace sluice::core {
namespace {

constexpr int64_t kPieceElements = 1 << 20;

// Elements [first, first + count) of an object.
struct Range {
  ObjectId object;
  int64_t first, count;
  // The parameters that 8-bit masters stand beside, from an element on; invalid: none.
  ObjectId parameters = {};
  int64_t first_parameter = 0;
};

Result<std::vector<WeightPlace>> find(const BuiltProgram& model, std::string_view name) {
  const auto places = weight_places(model);
  const auto it = places.find(name);
  if (it != places.end()) return it->second;
  return error(ErrorKind::NotFound, "weight {}: the model has no tensor of that name", name);
}

int64_t numbers_in(std::span<const Range> ranges) {
  int64_t numbers = 0;
  for (const Range& range : ranges) numbers += range.count;
  return numbers;
}

// The slot that is meant of a weight's state; null: it has none, or other numbers are meant.
const StateSlot* slot_of(const ParamObjects& objects, TensorKind kind) {
  if (kind.of != TensorKind::State || objects.rule == nullptr) return nullptr;
  const auto it = std::ranges::find(objects.rule->state, kind.slot, &StateSlot::role);
  return it == objects.rule->state.end() ? nullptr : &*it;
}

std::vector<std::string_view> slots_of(const ParamObjects& objects) {
  std::vector<std::string_view> out;
  if (objects.rule == nullptr) return out;
  for (const StateSlot& slot : objects.rule->state) out.push_back(slot.role);
  if (objects.has_master()) out.push_back(kMasterRole);
  return out;
}

// Where a tensor's numbers lie that a place has, in their order.
Result<std::vector<Range>> ranges_of(const BuiltProgram& model, TensorKind kind, std::string_view name,
                                     const WeightPlace& place) {
  const ParamObjects& objects = model.params[place.weight];
  const int64_t count = place.source->elements(), end = place.first + count;
  if (kind.of == TensorKind::Weight) return std::vector<Range>{{objects.param, place.first, count}};
  if (!objects.grad.valid())
    return error("{}: it is not trained, and has neither gradient nor optimizer state", name);
  if (kind.of == TensorKind::Gradient) return std::vector<Range>{{objects.grad, place.first, count}};
  if (!model.weights[place.weight].learnt.empty())
    return error("{}: some of its rows are trained, and none of the others has optimizer state", name);
  const StateSlot* slot = slot_of(objects, kind);
  const bool master = kind.slot == kMasterRole && objects.has_master();
  if (slot == nullptr && !master)
    return error("state {} of {}: allowed are {}", kind.slot, name, fmt::join(slots_of(objects), ", "));
  std::vector<Range> out;
  for (const ParamObjects::Part& part : objects.parts) {
    const int64_t from = std::max(place.first, part.first), to = std::min(end, part.first + part.elements());
    if (from >= to) continue;
    const ObjectId object = master ? part.master : part.state[size_t(slot - objects.rule->state.data())];
    if (slot != nullptr && slot->each != Each::Element) {
      out.push_back({object, 0, slot->numbers(part)});
      continue;
    }
    out.push_back({object, from - part.first, to - from});
    if (master && has_residuals(model.program, part))
      out.back().parameters = objects.param, out.back().first_parameter = from;
  }
  return out;
}

// And where all of them do, place by place.
Result<std::vector<Range>> ranges_of(const BuiltProgram& model, TensorKind kind, std::string_view name,
                                     std::span<const WeightPlace> places) {
  std::vector<Range> out;
  for (const WeightPlace& place : places) {
    SLUICE_ASSIGN(const std::vector<Range> ranges, ranges_of(model, kind, name, place));
    out.insert(out.end(), ranges.begin(), ranges.end());
  }
  return out;
}

// A tensor's numbers in the order of the places: of all elements, or of a slot that has one for each row or
// column.
struct Order {
  std::span<const WeightPlace> places;
  int64_t numbers;
  Each each = Each::Element;
};
Order order_of(const BuiltProgram& model, TensorKind kind, std::span<const WeightPlace> places,
               std::span<const Range> ranges) {
  const StateSlot* slot = slot_of(model.params[places.front().weight], kind);
  return {places, numbers_in(ranges), slot != nullptr ? slot->each : Each::Element};
}

// Calls f(first, at, count) for numbers that follow each other from `first` on in the order of the places,
// and from `at` on in the tensor. Rows are those that the model has: of a tensor that is turned, its columns.
template <class F>
void for_each_stretch(const Order& order, F&& f) {
  int64_t before = 0, elements_of_all = 0, rows_of_all = 0;
  for (const WeightPlace& place : order.places)
    elements_of_all += place.source->elements(), rows_of_all += place.source->rows;
  // A vector has one row, in which every element is a column.
  if (order.each != Each::Element && order.numbers != elements_of_all) {
    // Rows lie as the tensor's do. Columns are those of each matrix by itself, one matrix after the other.
    const bool rows = order.each == Each::Row && order.numbers == rows_of_all;
    if (!rows) return f(int64_t{0}, int64_t{0}, order.numbers);
    for (const WeightPlace& place : order.places) {
      const WeightSource& own = *place.source;
      for (int64_t row = 0; row < own.rows; ++row, ++before)
        f(before, own.stretch(row * own.cols, (row + 1) * own.cols).at / own.cols, int64_t{1});
    }
    return;
  }
  for (const WeightPlace& place : order.places) {
    const int64_t elements = place.source->elements();
    for (int64_t done = 0; done < elements;) {
      const auto [at, count] = place.source->stretch(done, elements);
      if (place.source->transposed) {
        for (int64_t i = 0; i < count; ++i) f(before + done + i, place.source->in_tensor(at + i), int64_t{1});
      } else {
        f(before + done, at, count);
      }
      done += count;
    }
    before += elements;
  }
}

// Whether that is one order, as of most tensors.
bool in_order(const Order& order) {
  bool out = true;
  for_each_stretch(order, [&](int64_t first, int64_t at, int64_t) { out = out && first == at; });
  return out;
}
// A tensor's values in the order of the places: themselves, or in `storage`.
std::span<const float> gathered(const Order& order, std::span<const float> values,
                                std::vector<float>& storage) {
  if (in_order(order)) return values;
  storage.resize(values.size());
  for_each_stretch(order, [&](int64_t first, int64_t at, int64_t count) {
    std::copy_n(values.begin() + at, count, storage.begin() + first);
  });
  return storage;
}
// And back.
std::vector<float> scattered(const Order& order, std::vector<float> values) {
  if (in_order(order)) return values;
  std::vector<float> out(values.size());
  for_each_stretch(order, [&](int64_t first, int64_t at, int64_t count) {
    std::copy_n(values.begin() + first, count, out.begin() + at);
  });
  return out;
}
// Where an element in the order of the places is in the tensor.
int64_t in_tensor(const Order& order, int64_t element) {
  int64_t out = element;
  for_each_stretch(order, [&](int64_t first, int64_t at, int64_t count) {
    if (element >= first && element < first + count) out = at + element - first;
  });
  return out;
}

// All of an object of compact state: groups and scales lie apart.
Result<std::vector<std::byte>> read_whole(const Object& object, ObjectId id, const Executor& executor) {
  std::vector<std::byte> bytes(size_t(object.bytes));
  SLUICE_TRY(executor.read(id, bytes));
  return bytes;
}

// Calls f(values) for all of a range, in pieces.
template <class F>
Status for_each_piece(const Range& range, const Executor& executor, F&& f) {
  const Object& object = executor.program().object(range.object);
  const NumberFormat& format = object.format;
  std::vector<std::byte> bytes;
  std::vector<float> values;
  if (format.block > 0) {
    SLUICE_ASSIGN(const std::vector<std::byte> whole, read_whole(object, range.object, executor));
    const std::vector<float> all = expand(format, whole);
    f(std::vector<float>(all.begin() + range.first, all.begin() + range.first + range.count));
    return {};
  }
  for (int64_t done = 0; done < range.count; done += kPieceElements) {
    const int64_t here = std::min(kPieceElements, range.count - done);
    bytes.resize(size_t(format.bytes(here)));
    SLUICE_TRY(executor.read(range.object, bytes, format.bytes(range.first + done)));
    if (range.parameters.valid()) {
      SLUICE_TRY(read_joined(executor, range.parameters, range.first_parameter + done, bytes, values));
    } else {
      read_elements(tensor_type(format.type), bytes, values);
    }
    f(values);
  }
  return {};
}

}  // namespace

std::vector<std::string_view> state_slots(const BuiltProgram& model) {
  std::vector<std::string_view> out;
  bool masters = false;
  for (const ParamObjects& objects : model.params) {
    for (const std::string_view slot : slots_of(objects)) {
      if (slot == kMasterRole) {
        masters = true;
      } else if (std::ranges::find(out, slot) == out.end()) {
        out.push_back(slot);
      }
    }
  }
  if (masters) out.push_back(kMasterRole);
  return out;
}

Result<std::vector<std::string_view>> state_slots_of(const BuiltProgram& model, std::string_view name) {
  SLUICE_ASSIGN(const std::vector<WeightPlace> places, find(model, name));
  return slots_of(model.params[places.front().weight]);
}

Result<std::vector<float>> read_tensor(const BuiltProgram& model, TensorKind kind, std::string_view name,
                                       const Executor& executor) {
  SLUICE_ASSIGN(const std::vector<WeightPlace> places, find(model, name));
  SLUICE_ASSIGN(const std::vector<Range> ranges, ranges_of(model, kind, name, places));
  std::vector<float> out;
  out.reserve(size_t(numbers_in(ranges)));
  for (const Range& range : ranges) {
    SLUICE_TRY(for_each_piece(range, executor, [&](const std::vector<float>& values) {
      out.insert(out.end(), values.begin(), values.end());
    }));
  }
  return scattered(order_of(model, kind, places, ranges), std::move(out));
}

Status check_tensor(const BuiltProgram& model, TensorKind kind, std::string_view name) {
  SLUICE_ASSIGN(const std::vector<WeightPlace> places, find(model, name));
  SLUICE_TRY(ranges_of(model, kind, name, places));
  return {};
}

Status check_write(const BuiltProgram& model, TensorKind kind, std::string_view name,
                   std::span<const float> values) {
  SLUICE_ASSIGN(const std::vector<WeightPlace> places, find(model, name));
  if (kind.of == TensorKind::State && kind.slot == kMasterRole)
    return error("state {}: it is set with the weight, not alone", kMasterRole);
  SLUICE_ASSIGN(const std::vector<Range> ranges, ranges_of(model, kind, name, places));
  const Order order = order_of(model, kind, places, ranges);
  if (int64_t(values.size()) != order.numbers)
    return error("{} {}: {} values; it has {}",
                 kind.of == TensorKind::State ? fmt::format("state {} of", kind.slot) : "weight", name,
                 values.size(), order.numbers);
  const TensorInfo tensor{std::string(name), TensorType::F32, {int64_t(values.size())}};
  const StateSlot* slot = slot_of(model.params[places.front().weight], kind);
  SLUICE_TRY(check_values(tensor, slot != nullptr && slot->squares, 0, std::as_bytes(values)));
  std::vector<std::byte> bytes;
  std::vector<float> storage;
  const std::span<const float> own_order = gathered(order, values, storage);
  int64_t first = 0;  // of the range, in the order of the places
  for (const Range& range : ranges) {
    const NumberFormat& format = model.program.object(range.object).format;
    for (int64_t done = 0; done < range.count; done += kPieceElements) {
      const auto own =
          own_order.subspan(size_t(first + done), size_t(std::min(kPieceElements, range.count - done)));
      // A scale is as large as the largest number of its group.
      const TensorType type = tensor_type(format.block > 0 ? format.scale : format.type);
      if (const int64_t bad = round_elements(type, own, bytes); bad >= 0)
        return error("{}: element {} is {}, which {} has no finite number for", name,
                     in_tensor(order, first + done + bad), own[size_t(bad)], to_text(format));
    }
    first += range.count;
  }
  return {};
}

Status write_tensor(const BuiltProgram& model, TensorKind kind, std::string_view name,
                    std::span<const float> values, Executor& executor) {
  SLUICE_ASSIGN(const std::vector<WeightPlace> places, find(model, name));
  if (kind.of == TensorKind::Weight) {
    const TensorInfo tensor{std::string(name), TensorType::F32, {int64_t(values.size())}};
    return write_weight(model, places, tensor, 0, std::as_bytes(values), executor);
  }
  SLUICE_ASSIGN(const std::vector<Range> ranges, ranges_of(model, kind, name, places));
  std::vector<std::byte> bytes;
  std::vector<float> storage;
  values = gathered(order_of(model, kind, places, ranges), values, storage);
  for (const Range& range : ranges) {
    const Object& object = executor.program().object(range.object);
    const NumberFormat& format = object.format;
    if (format.block > 0) {
      SLUICE_ASSIGN(std::vector<std::byte> whole, read_whole(object, range.object, executor));
      put(format, whole, range.first, values.first(size_t(range.count)));
      values = values.subspan(size_t(range.count));
      SLUICE_TRY(executor.write(range.object, whole));
      continue;
    }
    const int64_t bad = round_elements(tensor_type(format.type), values.first(size_t(range.count)), bytes);
    SLUICE_CHECK(bad < 0, "{}: it was checked", name);
    values = values.subspan(size_t(range.count));
    SLUICE_TRY(executor.write(range.object, bytes, format.bytes(range.first)));
  }
  return {};
}

Result<std::vector<double>> gradient_squares(const BuiltProgram& model, const Executor& executor) {
  std::vector<double> out;
  for (const auto& [weight, elements] : norm_slots(model.weights)) {
    const ParamObjects& objects = model.params[weight];
    double sum = 0;
    const auto add = [&](const std::vector<float>& values) {
      for (const float v : values) sum += double{v} * double{v};
    };
    if (objects.grad.valid()) {
      SLUICE_TRY(for_each_piece({objects.grad, elements.first, elements.count}, executor, add));
    }
    out.push_back(sum);
  }
  return out;
}

}  // namespace sluice::core

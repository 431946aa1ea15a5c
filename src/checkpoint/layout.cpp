// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/layout.h"

#include <algorithm>
#include <map>

#include "checkpoint/weights.h"

namespace sluice::core {
namespace {

// Elements [first, first + count) of a weight's master, which are the tensor's from `element` on.
void add_master(const Program& program, const ParamObjects& objects, int64_t first, int64_t count,
                int64_t element, StoredTensor& to) {
  for (const ParamObjects::Part& part : objects.parts) {
    const int64_t begin = std::max(first, part.first);
    const int64_t end = std::min(first + count, part.first + part.elements());
    if (begin >= end) continue;
    if (has_residuals(program, part)) {
      add_joined(objects.param, begin, part.master, begin - part.first, end - begin, element + begin - first,
                 to);
    } else {
      to.parts.push_back({.object = part.master,
                          .offset = 4 * (begin - part.first),
                          .bytes = 4 * (end - begin),
                          .position = 0,
                          .element = element + begin - first,
                          .source = last_source(to)});
      to.from = TensorType::F32;
    }
  }
}

// The tensors of an object: its elements and, where it has any, their scales.
void add_whole(const Program& program, ObjectId id, bool never_negative, std::vector<StoredTensor>& out) {
  const Object& o = program.object(id);
  const int64_t elements = o.elements(), bytes = NumberFormat(o.format.type).bytes(elements);
  const TensorType type = tensor_type(o.format.type);
  out.push_back({{o.name, type, {elements}}, {{id, 0, bytes, 0}}, type, never_negative});
  if (o.format.block == 0) return;
  const TensorType scale = tensor_type(o.format.scale);
  out.push_back({{o.name + std::string(kScaleSuffix), scale, {elements / o.format.block}},
                 {{id, bytes, o.bytes - bytes, 0}},
                 scale,
                 true});
}

// Adds up where the parts are.
void place(CheckpointLayout& layout) {
  layout.file_bytes = layout.part_bytes = 0;
  for (std::vector<StoredTensor>* file : {&layout.weights, &layout.state}) {
    for (StoredTensor& tensor : *file) {
      layout.file_bytes += tensor.info.bytes();
      const auto put = [&](StoredPart& part) {
        part.again = !tensor.turned.empty();
        part.position = layout.part_bytes;
        layout.part_bytes += part.bytes;
      };
      SLUICE_CHECK(tensor.residuals.empty() || tensor.residuals.size() == tensor.parts.size(),
                   "{}: its rows are of several types", tensor.info.name);
      for (size_t i = 0; i < tensor.parts.size(); ++i) {
        put(tensor.parts[i]);
        if (!tensor.residuals.empty()) put(tensor.residuals[i]);
      }
    }
  }
}

}  // namespace

void add_joined(ObjectId parameter, int64_t first, ObjectId residual, int64_t residual_first, int64_t count,
                int64_t element, StoredTensor& to) {
  for (int64_t done = 0; done < count; done += kMostJoined) {
    const int64_t here = std::min(kMostJoined, count - done);
    StoredPart& part = to.parts.emplace_back(parameter, 2 * (first + done), 2 * here, 0, element + done);
    StoredPart& beside = to.residuals.emplace_back(residual, residual_first + done, here, 0, element + done);
    part.source = beside.source = last_source(to);
  }
}

size_t last_source(const StoredTensor& tensor) {
  return std::max<size_t>(tensor.turned.size(), 1) - 1;
}

void put_in_order(StoredTensor& tensor) {
  if (!tensor.turned.empty()) return;
  std::ranges::sort(tensor.parts, {}, &StoredPart::element);
  std::ranges::sort(tensor.residuals, {}, &StoredPart::element);
}

CheckpointLayout layout_of(const BuiltProgram& model, bool f32_weights, Held held) {
  CheckpointLayout out;
  out.held = held;
  std::map<std::string, size_t, std::less<>> tensors;
  for (size_t w = 0; w < model.weights.size(); ++w) {
    if (!holds(held, model.weights[w])) continue;
    const ParamObjects& objects = model.params[w];
    const NumberFormat& format = model.program.object(objects.param).format;
    const bool packed = format.block > 0;
    const DType own = packed ? DType::BF16 : format.type;
    const bool from_master = f32_weights && objects.has_master();
    for (const auto& [first, rows] : rows_in(held, model.weights[w])) {
      const WeightSource& source = *rows;
      const int64_t elements = source.elements();
      const auto [it, fresh] = tensors.try_emplace(source.tensor, out.weights.size());
      if (fresh) {
        StoredTensor& tensor = out.weights.emplace_back();
        tensor.info = {name_in(held, source.tensor), f32_weights ? TensorType::F32 : tensor_type(own),
                       source.shape(model.weights[w].matrix)};
        tensor.from = tensor_type(own);
      }
      StoredTensor& tensor = out.weights[it->second];
      if (source.transposed) tensor.turned.push_back(source);
      for (int64_t done = 0; done < elements;) {
        const auto [at, count] =
            source.transposed ? WeightSource::Stretch{0, elements} : source.stretch(done, elements);
        if (from_master) {
          add_master(model.program, objects, first + done, count, at, tensor);
        } else {
          tensor.parts.push_back({.object = objects.param,
                                  .offset = NumberFormat(own).bytes(first + done),
                                  .bytes = NumberFormat(own).bytes(count),
                                  .position = 0,
                                  .element = at,
                                  .source = last_source(tensor),
                                  .packed = packed});
        }
        done += count;
      }
    }
    for (const ParamObjects::Part& part : objects.parts) {
      for (size_t s = 0; s < part.state.size(); ++s)
        add_whole(model.program, part.state[s], objects.rule->state[s].squares, out.state);
      if (part.master.valid() && !from_master) add_whole(model.program, part.master, false, out.state);
    }
  }
  std::ranges::for_each(out.weights, put_in_order);
  place(out);
  return out;
}

CheckpointLayout weights_only(CheckpointLayout layout) {
  layout.state.clear();
  place(layout);
  return layout;
}

}  // namespace sluice::core

// SPDX-License-Identifier: Apache-2.0
#include "estimate/estimate.h"

#include <algorithm>
#include <utility>

#include "estimate/sections.h"

namespace sluice::core {
namespace {

Status validate(const EstimateInput& in) {
  const std::pair<const char*, int64_t> positive[] = {{"--seq-len", in.batch.seq_len},
                                                      {"--batch", in.batch.rows},
                                                      {"--accumulate", in.accumulate},
                                                      {"--devices", in.devices},
                                                      {"--tp", in.tp},
                                                      {"--pp", in.pp}};
  constexpr int64_t kMost = int64_t{1} << 24;
  for (const auto& [option, value] : positive) {
    if (value < 1 || value > kMost) return error("{} = {}: allowed are 1 to {}", option, value, kMost);
  }
  if (in.batch.tokens() > int64_t{1} << 26) {
    return error("--seq-len {} x --batch {}: allowed are up to 2^26 tokens", in.batch.seq_len, in.batch.rows);
  }
  if (in.devices % (in.tp * in.pp) != 0) {
    return error("--devices {}: not a multiple of --tp {} x --pp {} = {}, the devices of one replica",
                 in.devices, in.tp, in.pp, in.tp * in.pp);
  }
  if (!(in.mfu > 0 && in.mfu <= 1)) return error("--mfu {}: allowed are numbers above 0 and up to 1", in.mfu);
  const std::pair<const char*, double> not_negative[] = {{"--tokens", in.tokens},
                                                         {"--price", in.price},
                                                         {"--tokens-per-s", in.tokens_per_s},
                                                         {"--step-s", in.step_s}};
  for (const auto& [option, value] : not_negative) {
    if (!(value >= 0)) return error("{} {}: allowed are positive numbers", option, value);
  }
  if (in.tokens_per_s > 0 && in.step_s > 0)
    return error("--tokens-per-s and --step-s say the same; give one");
  return {};
}

std::vector<std::string> legend_of(const Basis& b) {
  std::vector<std::string> lines;
  if (b.spec != nullptr) {
    const LayerSpec& layer = b.spec->layers.front();
    const Attention& a = b.spec->attention();
    lines.push_back(fmt::format(
        "L {} layers, D {} width, F {} of {}, H {} heads, Q {} = H x {}, K {} of keys and of values, V "
        "{} vocabulary",
        b.spec->layers.size(), b.spec->dim, layer.mlp().ffn,
        layer.experts() != nullptr ? "an expert" : "the FFN", a.heads, a.q_dim(), a.head_dim, a.kv_dim(),
        b.spec->vocab));
  } else if (b.in.subject.blocks) {
    const Subject::Blocks& s = *b.in.subject.blocks;
    lines.push_back(
        fmt::format("L {} blocks of {} matrices of D {} x F {}", s.layers, s.matrices, s.dim, s.ffn));
  }
  lines.push_back(fmt::format("S {} tokens of a sequence, B {} sequences: T = B S = {} tokens at once",
                              b.in.batch.seq_len, b.in.batch.rows, b.in.batch.tokens()));
  lines.emplace_back(
      "P all parameters, N those of matrices (embedding and head too), A what activations take of a token");
  if (b.in.device) {
    const Device& d = *b.in.device;
    lines.push_back(fmt::format("{}: M {} of memory, C {} ({} products, data sheet), W {} of memory", d.name,
                                to_text(d.memory_bytes, Form::Bytes),
                                to_text(d.peak_flops, Form::FlopsPerSecond), d.peak_format,
                                to_text(d.memory_rate, Form::BytesPerSecond)));
  }
  return lines;
}

}  // namespace

Result<Page> estimate(const EstimateInput& input) {
  SLUICE_TRY(validate(input));
  Basis basis{.in = input};
  basis.params = basis.matrices = basis.active = basis.in_layers = double(input.subject.params);
  if (input.subject.spec) {
    basis.spec = &*input.subject.spec;
    basis.parts = parameter_parts(*basis.spec);
    basis.matrices = double(basis.parts.matrices());
    basis.active = basis.matrices - double(basis.spec->params() - basis.spec->active_params());
    basis.in_layers = double(basis.parts.attention + basis.parts.ffn);
    basis.forward = count_forward(*basis.spec, input.batch, DType::BF16);
    const Optimizer* optimizer = find_optimizer(input.recipe->optimizer);
    basis.training = count_training(*basis.spec, input.batch, numerics_of(*input.recipe),
                                    optimizer != nullptr ? *optimizer : *optimizers().front());
  }
  basis.statics = static_bytes(*input.recipe, basis.params, basis.in_layers, basis.spec);

  Page page;
  page.title = fmt::format("{}: {} parameters", input.subject.name, to_text(basis.params, Form::Count));
  page.legend = legend_of(basis);
  for (const auto section_of : {parameters_section, inference_section, flops_section, memory_section,
                                activations_section, time_section, roofline_section, scaling_section,
                                batch_section, sharding_section, mesh_section, sizes_section}) {
    if (auto section = section_of(basis)) page.sections.push_back(std::move(*section));
  }
  if (!input.device) {
    page.sections.push_back({"more",
                             "More",
                             {},
                             {},
                             {"--machine NAME adds what depends on one: lengths and batches that fit, "
                              "hours and cost, what is bound by memory, sizes."}});
  }
  return page;
}

Result<Mesh> parse_mesh(std::string_view text) {
  Mesh mesh;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    std::string_view value = part.substr(std::min(equals + 1, part.size()));
    const auto amount = [&](std::string_view number) {
      return parse_amount(fmt::format("--mesh {}", name), number);
    };
    if (name == "fsdp" || name == "tp") {
      const size_t slash = value.find('/');
      SLUICE_ASSIGN(const double size, amount(value.substr(0, slash)));
      double axes = 1;
      if (slash != value.npos) {
        SLUICE_ASSIGN(axes, amount(value.substr(slash + 1)));
      }
      if (size < 1 || axes < 1 || size > 1e6 || axes > 1e6) {
        return error("--mesh {}: sizes and axes are 1 to 1,000,000", part);
      }
      (name == "fsdp" ? mesh.fsdp : mesh.tp) = int64_t(size);
      (name == "fsdp" ? mesh.fsdp_axes : mesh.tp_axes) = int64_t(axes);
    } else if (name == "link" || name == "peak") {
      SLUICE_ASSIGN((name == "link" ? mesh.link_rate : mesh.peak_flops), amount(value));
    } else {
      return error("--mesh '{}': allowed are fsdp=SIZE/AXES, tp=SIZE/AXES, link=BYTES_PER_S and peak=FLOPS",
                   name);
    }
  }
  if (!(mesh.link_rate > 0))
    return error("--mesh {}: needs link=BYTES_PER_S of an axis, such as 180e9", text);
  return mesh;
}

}  // namespace sluice::core

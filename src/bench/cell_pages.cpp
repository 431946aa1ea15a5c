// SPDX-License-Identifier: Apache-2.0
#include "bench/cell_pages.h"

#include <fmt/format.h>

#include <algorithm>

#include "draw/axis.h"

namespace sluice::core {
namespace {

std::string name_of(const CellResult& c) {
  return fmt::format("{}, {} x {}, {}", c.model, c.batch, grouped(double(c.seq_len), 0), c.compute);
}

std::string time_of(const Measured& m) {
  return to_text(m.mean, Form::Seconds);
}

void add(std::vector<std::optional<double>>& values, const Measured& m) {
  values.insert(values.end(), {m.mean, m.deviation});
}

// Those that gave no numbers, and why; nothing where all did.
void add_failed(Section& s, std::span<const CellResult> cells) {
  Table t{.key = "cannot", .title = "Cells without numbers", .row_title = "cell"};
  t.note_key = "message", t.note_title = "why";
  for (const CellResult& c : cells) {
    if (!c.ok()) t.rows.push_back({name_of(c), {}, c.status + ": " + c.message});
  }
  if (!t.rows.empty()) s.tables.push_back(std::move(t));
}

constexpr int64_t MemorySample::*kParts[] = {&MemorySample::params, &MemorySample::grads,
                                             &MemorySample::state, &MemorySample::activations,
                                             &MemorySample::others};

}  // namespace

Page model_page(std::span<const CellResult> cells) {
  Page page{
      .title = "Steps by phase",
      .legend = {
          "A cell is a model, sequences x tokens, and the number format that is computed in. Times are means "
          "over the steps after those to warm up, with standard deviations.",
          "forward, backward, optimizer: ops at work; what is computed again is part of backward. The rest "
          "of "
          "a step is what copies nothing hides, waiting, and the host's work.",
          "MFU: the model's FLOPs of a step / its time / the rate of the fastest product that was measured, "
          "or of the data sheet on a GPU that is known."}};
  Section s{.key = "model", .title = "Models"};
  Table t{.key = "cells", .title = "Cells", .row_title = "cell"};
  t.note_key = "shape", t.note_title = "chunks";
  t.columns = {{"params", "parameters", Form::Count},        {"forward_s", "forward", Form::Seconds},
               {"forward_s_deviation", "±", Form::Seconds},  {"backward_s", "backward", Form::Seconds},
               {"backward_s_deviation", "±", Form::Seconds}, {"update_s", "optimizer", Form::Seconds},
               {"update_s_deviation", "±", Form::Seconds},   {"step_s", "step", Form::Seconds},
               {"step_s_deviation", "±", Form::Seconds},     {"predicted_s", "planned", Form::Seconds},
               {"tokens_per_s", "tokens/s", Form::Number},   {"mfu", "MFU", Form::Share}};
  Table peaks{
      .key = "peaks", .title = "Most of the device's arena that holds something", .row_title = "cell"};
  peaks.columns = {{"forward_peak_bytes", "in forward", Form::Memory},
                   {"backward_peak_bytes", "in backward", Form::Memory},
                   {"update_peak_bytes", "in optimizer", Form::Memory}};
  Bars bars{.title = "tokens/s", .subtitle = "of whole steps"};
  for (const CellResult& c : cells) {
    Bar bar{.name = name_of(c), .label = c.status};
    if (c.ok()) {
      Row row{.name = name_of(c), .values = {double(c.params)}, .note = c.shape};
      for (const Measured& phase : c.phases) add(row.values, phase);
      add(row.values, c.step);
      row.values.insert(row.values.end(), {c.predicted_s, c.tokens_per_s, c.mfu()});
      t.rows.push_back(std::move(row));
      Row& peak = peaks.rows.emplace_back(Row{.name = name_of(c), .values = {}});
      for (const int64_t bytes : c.peak_bytes) peak.values.push_back(double(bytes));
      bar.value = c.tokens_per_s;
      bar.label = fmt::format("{}: forward {}, backward {}, optimizer {}, step {}",
                              to_text(c.tokens_per_s, Form::Number), time_of(c.phases[0]),
                              time_of(c.phases[1]), time_of(c.phases[2]), time_of(c.step));
    }
    bars.bars.push_back(std::move(bar));
  }
  if (!t.rows.empty()) s.tables = {std::move(t), std::move(peaks)};
  add_failed(s, cells);
  s.bars.push_back(std::move(bars));
  page.sections.push_back(std::move(s));
  return page;
}

Page kernels_page(std::span<const CellResult> cells) {
  Page page{
      .title = "Steps by op",
      .legend = {
          "Shares are of the time that ops are at work. Attention computes its scores a block at a time and "
          "keeps none: how products compare with the softmax between them is what bench attention says. "
          "Head and loss are one op, whose forward and backward pass go together: it is not in the forward "
          "pass."}};
  for (const CellResult& c : cells) {
    if (!c.ok()) continue;
    Section s{.key = fmt::format("{}_{}_{}_{}", c.model, c.batch, c.seq_len, c.compute), .title = name_of(c)};
    double all = 0, forward = 0;
    for (const OpTime& o : c.classes) all += o.s, forward += o.forward_s;
    Table classes{.key = "classes", .title = "By class", .row_title = "class"};
    classes.columns = {{"count", "runs", Form::Count},
                       {"s", "in the step", Form::Seconds},
                       {"share", "share", Form::Share},
                       {"forward_s", "forward alone", Form::Seconds},
                       {"forward_share", "share", Form::Share}};
    Bars bars{.title = name_of(c), .subtitle = "time of ops by class"};
    const auto share = [](double part, double whole) {
      return whole > 0 ? std::optional(part / whole) : std::nullopt;
    };
    for (const OpTime& o : c.classes) {
      classes.rows.push_back(
          {o.name, {double(o.count), o.s, share(o.s, all), o.forward_s, share(o.forward_s, forward)}});
      bars.bars.push_back(
          {o.name, o.s, fmt::format("{}, {}", to_text(o.s, Form::Seconds), to_text(o.s / all, Form::Share))});
    }
    classes.rows.push_back({"all", {std::nullopt, all, 1.0, forward, 1.0}});
    if (c.copies_s > 0)
      classes.formulas.push_back("copies beside them: " + to_text(c.copies_s, Form::Seconds));
    Table top{.key = "top", .title = "Longest", .row_title = "op or kernel"};
    top.columns = classes.columns;
    for (const OpTime& o : c.top) {
      top.rows.push_back(
          {o.name, {double(o.count), o.s, share(o.s, all), o.forward_s, share(o.forward_s, forward)}});
    }
    s.tables = {std::move(classes), std::move(top)};
    if (!c.notes.empty()) s.notes.push_back(c.notes);
    s.bars.push_back(std::move(bars));
    page.sections.push_back(std::move(s));
  }
  Section failed{.key = "failed", .title = "Not measured"};
  add_failed(failed, cells);
  if (!failed.tables.empty()) page.sections.push_back(std::move(failed));
  return page;
}

Page memory_page(std::span<const CellResult> cells) {
  Page page{
      .title = "Memory of steps",
      .legend = {
          "Of the device's arena what holds something while ops of a phase run. The process holds more: "
          "planned is the arena with what the machine keeps beside it, seen what driver or operating system "
          "said after each step. Forward alone: the arena of a program without a backward pass, of one "
          "chunk."}};
  Section s{.key = "memory", .title = "Memory"};
  Table t{.key = "cells", .title = "Cells", .row_title = "cell"};
  t.columns = {{"forward_only_bytes", "forward alone", Form::Memory},
               {"forward_peak_bytes", "in forward", Form::Memory},
               {"backward_peak_bytes", "in backward", Form::Memory},
               {"update_peak_bytes", "in optimizer", Form::Memory},
               {"predicted_device_bytes", "device, planned", Form::Memory},
               {"device_bytes", "seen", Form::Memory},
               {"predicted_host_bytes", "host, planned", Form::Memory},
               {"host_bytes", "seen", Form::Memory}};
  for (const CellResult& c : cells) {
    if (!c.ok()) continue;
    Row row{.name = name_of(c), .values = {double(c.forward_only_bytes)}};
    for (const int64_t bytes : c.peak_bytes) row.values.push_back(double(bytes));
    for (const int64_t bytes :
         {c.predicted_device_bytes, c.device_bytes, c.predicted_host_bytes, c.host_bytes}) {
      row.values.push_back(double(bytes));
    }
    t.rows.push_back(std::move(row));
    Plot plot{
        .title = name_of(c), .subtitle = "what the arena holds, stacked", .x_label = "ms", .y_label = "MiB"};
    constexpr const char* kNames[] = {"weights", "gradients", "optimizer state", "activations", "others"};
    for (size_t part = 0; part < std::size(kParts); ++part) {
      Series line{.name = kNames[part]};
      for (const MemorySample& m : c.memory) {
        int64_t bytes = 0;
        for (size_t below = 0; below <= part; ++below) bytes += m.*kParts[below];
        line.points.push_back({m.at_s * 1e3, double(bytes) / 1048576});
      }
      plot.series.push_back(std::move(line));
    }
    s.plots.push_back(std::move(plot));
  }
  if (!t.rows.empty()) s.tables.push_back(std::move(t));
  add_failed(s, cells);
  page.sections.push_back(std::move(s));
  return page;
}

}  // namespace sluice::core

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>
#include <unordered_map>

#include "base/bytes.h"
#include "program/program.h"

namespace sluice::core {
namespace {

char symbol(Access access) {
  return access == Access::Read ? ' ' : access == Access::Write ? '=' : '+';
}

}  // namespace

std::string dump_text(const Program& program) {
  std::string out = fmt::format("program {:016x}: {} tasks, {} objects\n", program.hash(),
                                program.tasks().size(), program.objects().size());
  for (const Task& task : program.tasks()) {
    fmt::format_to(std::back_inserter(out), "{} [{}]", task.name, to_text(task.op));
    for (const Use& use : task.uses) {
      fmt::format_to(std::back_inserter(out), " {}{}", symbol(use.access), program.object(use.object).name);
    }
    out += '\n';
  }
  return out;
}

std::string dump_dot(const Program& program) {
  std::string out = "digraph program {\n  rankdir=LR; node [shape=box];\n";
  std::unordered_map<uint32_t, uint32_t> writer;
  for (uint32_t t = 0; t < program.tasks().size(); ++t) {
    const Task& task = program.tasks()[t];
    fmt::format_to(std::back_inserter(out), "  t{} [label=\"{}\"];\n", t, task.name);
    for (const Use& use : task.uses) {
      const auto from = writer.find(use.object.value);
      if (use.access == Access::Write || from == writer.end()) continue;
      const Object& o = program.object(use.object);
      fmt::format_to(std::back_inserter(out), "  t{} -> t{} [label=\"{} {}\"];\n", from->second, t, o.name,
                     format_bytes(o.bytes));
    }
    for (const Use& use : task.uses) {
      if (use.access != Access::Read) writer[use.object.value] = t;
    }
  }
  return out + "}\n";
}

}  // namespace sluice::core

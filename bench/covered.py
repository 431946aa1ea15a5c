# SPDX-License-Identifier: Apache-2.0
"""Checks with a verdict that are not among the default tests, what their records in bench/results cover, and whether that has changed.

A record has a checksum of every path that it covers (record.py); older ones have a commit alone, with which the work tree is compared.
Timings are not listed: what they say of a commit stays true of it.
"""
import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass
class Sweep:
    question: str   # bench/results/QUESTION.jsonl
    command: str    # makes it anew
    covers: list    # files and folders
    days: int = 0   # that its record may be older than what it covers
    needs: str = ""
    cells: str = ""  # an expression for the `what` of cells that count, where others are of checks that have another name by now


# What takes minutes on any machine is made anew with the change itself. What takes hours, or a GPU that is rented, may wait for two
# weeks: whoever has neither can go on working, and no change stays unchecked for longer while others follow it.
LATER = 14
HOURS, GPU, GPUS = "hours", "a GPU", "two GPUs"
CPU = "build/cpu/cli/sluice"


def planner():
    return subprocess.run([ROOT / "scripts/web", "sources"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


CHATS = ["src/chat", "src/jinja", "tests/jinja/render"]
STEPS = ["src/model", "src/ops", "src/exec", "src/optimizer", "src/backend/cuda"]
SWEEPS = [
    Sweep("package_templates", "tests/jinja/compare build/cpu bytes --record MACHINE", [*CHATS, "tests/jinja/compare.py"]),
    Sweep("templates", "tests/jinja/compare build/cpu families --record MACHINE", [*CHATS, "tests/jinja/compare.py"]),
    Sweep("training_templates", "tests/jinja/compare build/cpu masks --record MACHINE", [*CHATS, "tests/jinja/masks.py"]),
    Sweep("origins", "tests/jinja/compare build/cpu origins --record MACHINE", [*CHATS, "tests/jinja/origins.py"]),
    Sweep("tokenizers", "tests/tokenizer/compare_real build/cpu 100000 --record MACHINE",
          ["src/tokenizer", "tests/tokenizer/compare.py", "tests/tokenizer/make_real.py", "tests/tokenizer/texts.py"],
          cells=': "(?!gemma3")'),
    Sweep("tokenizers", "tests/tokenizer/compare.py build/cpu/bench/tokenizer/sluice_bench_tokenizer tokenizer.json --record MACHINE",
          ["src/tokenizer"], LATER, "Gemma 3's tokenizer.json", "gemma3"),
    Sweep("hosts_equal", "tests/comm/hosts_equal --record MACHINE", ["src/comm", "tests/comm/hosts_equal"], needs="root"),
    Sweep("web", "scripts/web test --record MACHINE",
          ["web/page", "web/page.cmake", "web/program.cpp", "web/compat", "web/ask.js", "src/plan_json", "src/report/page"], needs="emscripten"),
    Sweep("web", "scripts/web test --record MACHINE", planner(), LATER, "emscripten"),
    Sweep("random_models", "tests/transformers/random_models.py DUMP --record MACHINE", ["src/model", "src/ops", "src/backend/cpu"], LATER, HOURS),
    Sweep("random_models_bf16", "tests/transformers/random_models.py DUMP --bf16 --record MACHINE", ["src/model", "src/ops", "src/backend/cpu"],
          LATER, HOURS),
    Sweep("others", "SLUICE_PACKAGES=1 ctest --test-dir build/cpu -R others", ["src/checkpoint", "src/run", "tests/others"], LATER, HOURS),
    Sweep("llamacpp", "SLUICE_PACKAGES=1 tests/others/others_test.sh build/cpu llamacpp", ["src/checkpoint", "src/model", "tests/others"], LATER, HOURS),
    Sweep("durability", "tests/durability/kill_matrix, shared_saves (--whole), random_kills, power_cuts", ["src/checkpoint", "src/io", "src/run"], LATER,
          HOURS),
    Sweep("memory_cpu", f"tests/caps/caps.py {CPU} --all --record MACHINE", ["src", "tests/caps"], LATER, HOURS, "VmHWM|control group"),
    Sweep("signals", f"tests/caps/signals.py {CPU} --record MACHINE", ["src/run", "src/commands", "cli"], LATER),
    Sweep("fuzzing", "scripts/fuzz --record MACHINE", ["src", "fuzz"], LATER, HOURS),
    Sweep("fuzzing_starts", f"scripts/fuzz_starts {CPU} --record MACHINE", ["src", "cli"], LATER, HOURS),
    Sweep("sanitizers", "scripts/sanitize --record MACHINE", ["src", "tests"], LATER, HOURS, "all default|exec, backend_cpu, backend_testing"),
    Sweep("batches", f"tests/batches/batches.py {CPU} --all --record MACHINE", ["src/search", "src/draw", "src/plan"], LATER, HOURS),
    Sweep("conformance_gpu", "scripts/test --gpu", ["src/backend/cuda", "src/ops", "tests/conformance"], LATER, GPU,
          'cases of conformance_cuda"|equivalence_cuda, whole, L'),
    Sweep("conformance_gpu", "scripts/test --sanitize", ["src/backend/cuda"], LATER, GPU, "memcheck|racecheck"),
    Sweep("conformance_gpu", "bench/gpu/python --record MACHINE", ["src/backend/cuda", "python"], LATER, GPU, "the Python package"),
    Sweep("parity_gpu", "tests/transformers/compare.py all OUT_DIR --family FAMILY", STEPS, LATER, GPU, ": logits, relative|curve of a small"),
    Sweep("memory_gpu", "bench/gpu/caps OUT_DIR --record MACHINE", ["src/backend/cuda", "src/plan", "src/search"], LATER, GPU),
    Sweep("processes_gpu", "bench/gpu/processes OUT_DIR", ["src/comm", "src/backend/cuda"], LATER, GPUS),
    Sweep("ring_equal_gpu", "bench/gpu/ring OUT_DIR equal --record MACHINE", ["src/exec", "src/backend/cuda"], LATER, GPUS),
]


def git(root, *arguments, **keys):
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, **keys)


def checksum(root, path):
    """Of the names and contents of the files of a path, as they are in the work tree."""
    files = [f for f in git(root, "ls-files", "-z", "--", path, check=True).stdout.split("\0") if (root / f).is_file()]
    contents = git(root, "hash-object", "--stdin-paths", input="\n".join(files), check=True).stdout.split()
    return hashlib.sha256("\n".join(map(" ".join, zip(files, contents))).encode()).hexdigest()[:12]


def checksums(question, root=ROOT, sweeps=None):
    """Of every path that a record of this question covers."""
    return {path: checksum(root, path) for s in sweeps or SWEEPS if s.question == question for path in s.covers}


class Tree:
    def __init__(self, root):
        self.root, self.known = root, {}

    def once(self, key, make):
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def differs(self, cell, path):
        """Whether a path is another than the one that a record is of."""
        if path in cell.get("covers", {}):
            return cell["covers"][path] != self.once(path, lambda: checksum(self.root, path))
        commit = cell["commit"].rstrip("+")
        # A commit that is not in this history is of a branch that was never merged as it was.
        return self.once((commit, path), lambda: git(self.root, "diff", "--quiet", commit, "--", path).returncode != 0)

    def changed_on(self, paths):
        day = git(self.root, "log", "-1", "--format=%cs", "--", *paths).stdout.strip()
        return datetime.date.fromisoformat(day) if day else datetime.date.min


def old(root=ROOT, sweeps=None):
    """Sweeps whose record is older than what it covers: [(words, whether that is longer than it may be)]."""
    tree, found = Tree(root), []
    for sweep in sweeps or SWEEPS:
        path = root / f"bench/results/{sweep.question}.jsonl"
        lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
        last = {json.dumps(c["what"], sort_keys=True): c for c in lines}
        cells = [c for what, c in last.items() if re.search(sweep.cells, what)]
        how = sweep.command + (f" (it takes {sweep.needs})" if sweep.needs else "")
        if not cells:
            found.append((f"{sweep.question}: nothing is recorded: {how}", True))
            continue
        changed = {id(c): [p for p in sweep.covers if tree.differs(c, p)] for c in cells}
        if not (behind := [c for c in cells if changed[id(c)]]):
            continue
        oldest = min(behind, key=lambda c: c["date"])
        paths = changed[id(oldest)]
        late = (tree.changed_on(paths) - datetime.date.fromisoformat(oldest["date"])).days
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        count = f", {len(behind)} of {len(cells)} cells" if len(cells) > 1 else ""
        found.append((f"{sweep.question}: of {oldest['commit']}, {oldest['date']}{count}; changed since: {', '.join(paths[:3])}{more}. {how}",
                      sweep.days == 0 or late > sweep.days))
    return found

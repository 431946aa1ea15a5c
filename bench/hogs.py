# SPDX-License-Identifier: Apache-2.0
"""Programs that take a share of a machine from a run, and a run under them whose share changes after every few steps."""
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINES = 60000  # of text to learn from
CLOSE = 0.03  # that a step's prediction has to be, as a part of it
MODELS = {
    name: {"model_type": "llama", "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
           "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
           "max_position_embeddings": 131072, "tie_word_embeddings": tied}
    for name, hidden, intermediate, layers, tied in [("llama3-1b", 2048, 8192, 16, True), ("llama3-8b", 4096, 14336, 32, False)]}
MORE = 1000  # steps that a run has left when it is ended here: a plan's gain is over these, and nothing is saved at an end


def write_text(path):
    path.write_text("".join(f"A line of text, number {i}, to learn from. " for i in range(LINES)))


def write_model(folder, config):
    """A model's configuration, and a tokenizer whose tokens are characters: sizes of a vocabulary decide speed, what it says does not."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    vocab = {chr(c): c - 32 for c in range(32, 127)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}}))


def start(sluice, work, name, settings):
    """A run in the folder `name` of `work`, which has the text."""
    run, config = work / name, work / f"{name}.toml"
    config.write_text(f'[data]\npaths = ["text.txt"]\nheldout = 0\n[run]\ndir = "{run}"\ntrace = false\n[sample]\ntokens = 0\n')
    command = [str(sluice), "train", str(config), "--new"]
    for setting in settings:
        command += ["--set", setting]
    with (work / f"{name}.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT), run


def steps_of(process, run):
    """The lines of its metrics as they come, until the run has ended."""
    path, read, rest = run / "metrics.jsonl", 0, ""
    while True:
        ended = process.poll() is not None
        if path.exists():
            with path.open() as lines:
                lines.seek(read)
                rest += lines.read()
                read = lines.tell()
        *whole, rest = rest.split("\n")
        for line in whole:
            if "step_ms" in (step := json.loads(line)):
                yield step
        if ended:
            return
        time.sleep(0.02)


def follow(sluice, work, settings, shares, each, take):
    """A run of `each` steps under every share in turn, take(share) being called before them. Its steps, each with its share."""
    take(shares[0])
    steps = each * len(shares)
    process, run = start(sluice, work, "run", [*settings, f"train.steps={steps + MORE}", "run.replan=auto"])
    out = []
    try:
        for step in steps_of(process, run):
            out.append(step | {"share": shares[min(len(out) // each, len(shares) - 1)]})
            show(out[-1])
            if len(out) == steps:
                break
            if len(out) % each == 0:
                take(shares[len(out) // each])
    finally:
        process.kill()
        process.wait()
        take(0)
    if len(out) < steps:
        log = (work / "run.log").read_text(errors="replace").splitlines()
        sys.exit(f"the run ended after {len(out)} of {steps} steps:\n" + "\n".join(log[-8:]))
    return out


def first_steps(sluice, work, name, settings, count):
    """The first steps of a run that is ended then, and when it began; fewer if it fails."""
    out, began = [], time.time()
    process, run = start(sluice, work, name, [*settings, f"train.steps={count + MORE}"])
    for step in steps_of(process, run):
        out.append(step)
        if len(out) == count:
            break
    process.kill()
    process.wait()
    return out, began


def planned_under(sluice, work, settings, share, steps, take):
    """The median step of a run that measured its costs and was planned under a share."""
    take(share)
    found, _ = first_steps(sluice, work, f"under-{share}", [*settings, f"data.cache={work / f'cache-{share}'}"], steps)
    take(0)
    if len(found) < steps:
        sys.exit(f"the run under {share} failed, see {work / f'under-{share}.log'}")
    return statistics.median(step["step_ms"] for step in found[1:])


def show(step):
    adopted = step.get("adopted")
    words = (f"   another plan: {adopted['why']}: {adopted['before_ms']:,.0f} to {adopted['after_ms']:,.0f} ms, "
             f"{adopted['moved_bytes'] / 2**30:.2f} GiB moved in {adopted['moving_ms']:,.0f} ms") if adopted else ""
    print(f"step {step['step']:>3}  {step['share']:>3} %  measured {step['step_ms']:>10,.1f} ms  predicted {step['predicted_ms']:>10,.1f} "
          f"({100 * error(step):+.1f} %)  by the plan {step['planned_ms']:>10,.1f}  "
          f"{step['differs']}{words}", flush=True)


def error(step):
    return step["predicted_ms"] / step["step_ms"] - 1


def summary(steps, shares, each, under):
    """A row for each stretch of steps under one share: of the last half of it, which had time to follow; `followed_after` so many steps
    the first was predicted within CLOSE. `under` has the median steps of runs that were planned under a share."""
    for i, share in enumerate(shares):
        all_steps = steps[i * each:(i + 1) * each]
        last = all_steps[each // 2:]
        measured = statistics.median(s["step_ms"] for s in last)
        row = {"share": share, "stretch": i, "measured_ms": round(measured, 2), "error": round(statistics.median(map(error, last)), 4),
               "followed_after": next((n for n, step in enumerate(all_steps) if abs(error(step)) <= CLOSE), None),
               "plans": sum("adopted" in s for s in all_steps)}
        if share in under:
            row["of_planned_under"] = round(under[share] / measured, 4)
        yield row


def measure(sluice, work, settings, cache, shares, each, take, also_planned_under):
    """Follows a run under the shares in turn, and where that is asked, measures one that is planned under each share but 0. Prints both;
    the rows of the summary."""
    steps = follow(sluice, work, [*settings, f"data.cache={cache}"], shares, each, take)
    under = {}
    for share in sorted(set(shares) - {0}) if also_planned_under else []:
        under[share] = planned_under(sluice, work, settings, share, each, take)
        print(f"planned under {share} %: {under[share]:,.1f} ms", flush=True)
    for row in summary(steps, shares, each, under):
        print(row, flush=True)
        yield row


class Cores:
    """Processes that compute for a share of the time, 100 % being one core."""

    def __init__(self):
        self.running = []

    def take(self, share):
        for process in self.running:
            process.kill()
            process.wait()
        self.running = []
        while share > 0:
            busy = min(share, 100) / 100
            code = (f"import time\nwhile True:\n    end = time.perf_counter() + {0.02 * busy}\n"
                    f"    while time.perf_counter() < end: pass\n    time.sleep({0.02 * (1 - busy)})\n")
            self.running.append(subprocess.Popen([sys.executable, "-c", code]))
            share -= 100

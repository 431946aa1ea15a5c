# SPDX-License-Identifier: Apache-2.0
"""The cells of bench/gpu/ring, the bars that they have to reach, and what their results say, as a table and as lines of
bench/results."""
import re
import typing

import cells
import record

# At 24 GiB one GPU has the part of the host's memory that is its own where several share it.
GROUPS = {
    "links": "links:1 links:2 links:4 links:8",
    "two": """8:8192:0:220:1:131072 8:8192:0:220:2:131072 8:8192:0:220:2:131072:host 8:8192:24:110:1:131072 8:8192:24:220:2:131072
        8:8192:9:220:1:131072 8:8192:9:220:2:131072 8:8192:0:220:1:262144 8:8192:0:220:2:262144
        lone:8:8192:0:110:2:131072 lone:8:8192:24:110:2:131072""",
    "four": """8:8192:0:220:1:131072 8:8192:0:440:4:262144 8:8192:0:440:4:524288 8:8192:0:440:4:524288:host 8:8192:24:110:1:131072
        8:8192:24:440:4:262144 8:8192:24:440:4:524288 32:8192:0:440:4:262144""",
    "eight": """8:8192:0:220:1:131072 8:8192:0:480:8:262144 8:8192:0:480:8:524288 8:8192:0:480:8:524288:host 8:8192:24:110:1:131072
        8:8192:24:480:8:262144 8:8192:24:480:8:524288 32:8192:0:480:8:262144""",
    "equal": """equal:llama3-1b:8192:20:2 equal:llama3-1b:8192:20:2:run.peer=off equal:llama3-1b:8192:20:2:memory.device=10GiB
        equal:llama3-1b:8192:20:4 equal:llama3-1b:8192:20:8""",
}
# What a cell has to reach: times one GPU, or times the ring that hands over directly.
BARS = {
    "8:8192:0:220:2:262144": ("one", 1.96), "8:8192:0:220:2:131072": ("one", 1.93), "8:8192:24:220:2:131072": ("one", 1.80),
    "8:8192:9:220:2:131072": ("one", 1.70), "8:8192:0:220:2:131072:host": ("ring", 0.93),
    "8:8192:0:440:4:524288": ("one", 3.85), "8:8192:0:480:8:524288": ("one", 7.40),
}
LEAST_STEPS = 4     # whose median counts


class Case(typing.NamedTuple):
    kind: str
    size: str
    seq: int
    device: int
    host: int
    devices: int
    tokens: int
    through_host: bool


def case_of(cell):
    """A cell of a speed, alone or of lone processes; None for others."""
    found = re.fullmatch(r"(lone:)?([^:]+):(\d+):(\d+):(\d+):([1-9]\d*):(\d+)(:host)?", cell)
    if not found or (found[1] and found[8]):
        return None
    return Case("lone" if found[1] else "speed", found[2], *map(int, found.groups()[2:7]), bool(found[8]))


def devices_of(cell):
    if cell.startswith("roundpipe:"):
        return 1
    case = case_of(cell)
    found = re.fullmatch(r"(?:links|equal:[^:]+:\d+:\d+):([1-9]\d*)(?::[^=]+=.*)?", cell)
    if not case and not found:
        raise SystemExit(f"CELL = {cell}: allowed are {', '.join(GROUPS)} and what --help says")
    return case.devices if case else int(found[1])


def billions(size):
    return float(size) if re.fullmatch(r"\d+(\.\d+)?", size) else None


def model_of(size):
    return f"llama3-{size}b" if billions(size) else size


def beside(cell, results):
    """{"one", "ring", "lone"}: the cell beside which this one stands, where it is there: the same case on one GPU, in another number of
    tokens if need be, handing over directly, and as processes of their own."""
    case = case_of(cell)
    others = [(c, case_of(c)) for c, r in results.items() if "tokens_per_s" in r and case_of(c)]
    same = [(c, o) for c, o in others if (o.size, o.seq, o.device) == (case.size, case.seq, case.device) and not o.through_host]
    found = {"one": [(c, o) for c, o in same if o.kind == "speed" and o.devices == 1],
             "ring": [(c, o) for c, o in same if o == case._replace(through_host=False)],
             "lone": [(c, o) for c, o in same if o.kind == "lone" and o.devices == case.devices and o.tokens == case.tokens]}
    return {what: min(of, key=lambda x: (abs(x[1].tokens - case.tokens), x[1].host != case.host))[0] for what, of in found.items() if of}


def times(cell, what, results):
    """How many times as fast it is as what it stands beside; None without."""
    other = beside(cell, results).get(what)
    return results[cell]["tokens_per_s"] / results[other]["tokens_per_s"] if other else None


def verdict(cell, results):
    what, bar = BARS[cell]
    reached, other = times(cell, what, results), beside(cell, results).get(what)
    if reached is None:
        return f"{bar:.2f} of {what} needed: not known yet"
    tokens = case_of(other).tokens
    of = f"{what} with {tokens} tokens" if tokens != case_of(cell).tokens else what
    return f"{reached:.3f} of {of}, {bar:.2f} needed: {'reached' if reached >= bar else 'missed'}"


def row(cell, results, width):
    r, case, head = results[cell], case_of(cell), f"{cell:<{width}}"
    if "failed" in r:
        return head + "failed: " + r["failed"]
    if "equal" in r:
        return head + (f"equal: {r['equal_steps']} steps, {r['equal_files']} files, to the last bit" if r["equal"]
                       else f"NOT EQUAL: {r['why']}")
    if "links" in r:
        return "\n".join([head + "GB/s of each link alone, and of all at once"] + [
            f"  {name:<{width - 2}}{x['alone_bytes_per_s'] / 1e9:>9.1f}{x['all_bytes_per_s'] / 1e9:>8.1f}" for name, x in r["links"].items()])
    head += f"{r['tokens_per_s']:>9.0f}"
    if not case:
        return head
    if case.kind == "lone":
        return f"{head}  the sum of " + ", ".join(f"{x['tokens_per_s']:.0f}" for x in r["each"])
    lone, one = beside(cell, results).get("lone"), times(cell, "one", results) if case.devices > 1 else None
    return (f"{head}{f'{one:.3f}' if one else '-':>8}{round(results[lone]['tokens_per_s']) if lone else '-':>9}"
            f"{r['simulated_ms'] / r['median_ms']:>8.3f}{r['median_ms']:>10.1f}{r['steps']:>3}  {r['shape'].replace(' ', ''):<14}  "
            + (verdict(cell, results) if cell in BARS else "")).rstrip()


def table(results):
    """In the order of the groups, then of the calls."""
    known = [cell for group in GROUPS.values() for cell in group.split()]
    order = sorted(results, key=lambda cell: known.index(cell) if cell in known else len(known))
    width = max(map(len, ["links", *results])) + 2
    head = f"{'cell':<{width}}{'tokens/s':>9}{'of one':>8}{'lone sum':>9}{'sim':>8}{'ms':>10}{'n':>3}  {'shape':<14}  bar"
    return "\n".join([head, *(row(cell, results, width) for cell in order)]) + "\n"


def add_to_results(results, settings, machine):
    command = "bench/gpu/ring OUT_DIR" + "".join(f" --set {setting}" for setting in settings)
    for cell, r in results.items():
        case = case_of(cell)
        if "links" in r:
            for name, x in r["links"].items():
                value = {f"{what}_{key}": round(x[f"{what}_{of}"] / 1e9, 1) for what in ("alone", "all")
                         for key, of in (("gb_per_s", "bytes_per_s"), ("deviation", "deviation"))}
                record.record("links_gpu", {"devices": devices_of(cell), "link": name}, {**value, "copies": int(x["all_copies"])}, machine,
                              command)
        elif "equal" in r:
            _, model, seq, steps, devices, *setting = cell.split(":", 5)
            record.record("ring_equal_gpu", {"model": model, "sequence": int(seq), "steps": int(steps), "devices": int(devices),
                                             "setting": "".join(setting) or None},
                          {"equal_steps": r["equal_steps"], "equal_files": r["equal_files"], "files": len(r["one"]["files"]),
                           "why": r["why"] or None}, machine, command)
        elif case and case.kind == "speed" and "tokens_per_s" in r:
            what = {"model": f"{case.size}B" if billions(case.size) else case.size, "sequence": case.seq,
                    "device_cap_gib": case.device or None, "host_cap_gib": case.host or None, "tokens_per_step": case.tokens,
                    "devices": case.devices, "through_host": case.through_host}
            lone, one, ring = (beside(cell, results).get(of) for of in ("lone", "one", "ring"))
            value = {"tokens_per_s": round(r["tokens_per_s"]), "simulated_ms": round(r["simulated_ms"], 1),
                     "measured_ms": round(r["median_ms"], 1), "steps": r["steps"], "shape": r["shape"]}
            if case.devices > 1:
                value.update(of_one=round(times(cell, "one", results), 3) if one else None,
                             of_ring=round(times(cell, "ring", results), 3) if ring and case.through_host else None,
                             lone_tokens_per_s=round(results[lone]["tokens_per_s"]) if lone else None,
                             hand_over="GPU to GPU" if r["handed_over_bytes"] else "host",
                             bar=verdict(cell, results) if cell in BARS else None)
            record.record("ring_gpu", what, value, machine, command, cells.binds(r.get("measured_breakdown_ms")))

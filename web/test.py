#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the planner in a page: its program beside the command line, and the page in headless Chromium.

test.py [--record MACHINE] [--program FILE] [--quick]: see scripts/web. --quick: fewer settings.
"""

import argparse
import json
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/web"
sys.path.insert(0, str(ROOT / "bench"))
from record import record  # noqa: E402

COMMON = ["train.seq_len=8192", "train.tokens_per_step=131072"]
# Machine, and settings: every kind of answer, among them several devices and another optimizer.
SETTINGS = [
    ("h200", ["model.preset=llama3-8b", *COMMON, "memory.device=24GiB", "memory.host=110GiB"]),
    ("h200", ["model.preset=llama3-8b", *COMMON, "memory.device=16GiB", "memory.host=110GiB"]),
    ("h200", ["model.preset=llama3-8b", *COMMON, "memory.device=9GiB", "memory.host=110GiB"]),
    ("h200", ["model.preset=llama3-1b", *COMMON, "memory.device=24GiB", "memory.host=110GiB"]),
    ("h200", ["model.preset=llama3-1b", *COMMON, "memory.device=16GiB", "memory.host=110GiB"]),
    ("h200", ["model.preset=llama3-1b", *COMMON, "memory.device=9GiB", "memory.host=110GiB"]),
    ("rtx4090", ["model.preset=llama3-8b", *COMMON, "memory.device=22GiB", "memory.host=56GiB"]),
    ("rtx4090", ["model.preset=llama3-8b", *COMMON, "memory.device=22GiB", "memory.host=56GiB", "train.state=i8"]),
    ("rtx3090", ["model.preset=llama3-1b", "train.seq_len=2048", "train.tokens_per_step=16384", "memory.device=6GiB",
                 "memory.host=32GiB", "train.optimizer=lion"]),
    ("h100", ["model.preset=llama3-1b", *COMMON, "memory.device=12GiB", "memory.host=64GiB", "run.devices=2"]),
    ("laptop", ["model.preset=tiny", "train.seq_len=512", "train.tokens_per_step=4096", "memory.device=1GiB", "memory.host=4GiB"]),
    ("h100", ["model.preset=llama3-8b", *COMMON, "memory.device=24GiB", "memory.host=60GiB", 'train.freeze=["model.embed*"]']),
]


class Program:
    """The page's program in Node.js."""

    def __init__(self):
        self.process = subprocess.Popen(["node", str(ROOT / "web/ask.js"), str(BUILD / "web/sluice_web.js")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question, **request):
        self.process.stdin.write(json.dumps([question, json.dumps(request)]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the program ended: {question} {request}")
        out = json.loads(line)
        return out["answer"], out["ms"] / 1000


class Checks:
    def __init__(self):
        self.passed, self.failed = 0, []

    def check(self, what, good, why=""):
        if good:
            self.passed += 1
        else:
            self.failed.append(what)
        print(f"{'ok' if good else 'FAILED':6} {what}" + (f": {why}" if why else ""), flush=True)


def native(program, machine, settings, work):
    """The plan of the command line with one thread, and the seconds that it took."""
    command = ["taskset", "-c", "0", program, "plan", "--machine", machine, "--run-dir", f"{work}/run", "--json", f"{work}/plan.json",
               "--set", f"data.cache={work}/cache"]
    for setting in settings:
        command += ["--set", setting]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.monotonic() - began
    if done.returncode:
        return None, seconds
    return json.loads(Path(f"{work}/plan.json").read_text()), seconds


def beside_the_command_line(checks, program, settings):
    """All that the full search says, but for facts that name files of the machine and what-ifs, which the page leaves to sliders."""
    page, ratios, longest = Program(), [], 0
    for machine, words in settings:
        with tempfile.TemporaryDirectory() as work:
            wanted, native_s = native(program, machine, words, work)
        answer, page_s = page.ask("plan", machine=machine, settings=words, threads=1)
        what = f"{machine} {' '.join(words)}"
        if wanted is None:
            checks.check(what, "error" in answer, answer.get("error", "the page plans what the command line refuses"))
            continue
        got = json.loads(answer.get("plan", "{}"))
        differ = [key for key in wanted if key not in ("facts", "what_ifs") and got.get(key) != wanted[key]]
        ratios.append(page_s / native_s)
        longest = max(longest, page_s)
        checks.check(what, not differ, f"{page_s:.1f} s, {page_s / native_s:.2f} x the command line's {native_s:.1f} s"
                     + (f"; differ: {differ} {answer.get('error', '')}" if differ else ""))
    return {"settings": len(settings), "times_of_native": [round(r, 2) for r in ratios], "longest_s": round(longest, 1)}


def random_settings(checks, firsts, searched):
    """Settings that nobody chose: an answer or a refusal, in time."""
    page, draw, slow, slow_rule, late = Program(), random.Random(1), 0, 0, 0
    choices = page.ask("choices")[0]
    machines = [m["key"] for m in choices["machines"]]
    # Families of default sizes, but of three layers.
    families = {family: re.sub(r'"(num_hidden_layers|n_layer)": *\d+', r'"\1": 3', text) for family, text in choices["families"].items()}
    refused, unlike, asked_of = 0, [], set()
    for k in range(firsts + searched):
        whole = k >= firsts
        model = draw.choice(["tiny", "llama3-1b", *families] if whole else ["tiny", "llama3-1b", "llama3-8b", *families])
        length = draw.choice([128, 512, 2048, 8192])
        given = {"model": families[model]} if model in families else {}
        words = [*([] if given else [f"model.preset={model}"]), f"train.seq_len={length}", f"train.tokens_per_step={length * draw.choice([1, 2, 3, 8, 16])}",
                 f"memory.device={draw.choice([1, 4, 8, 16, 24, 48])}GiB", f"memory.host={draw.choice([4, 16, 32, 64, 128])}GiB",
                 f"train.optimizer={draw.choice(['adamw', 'lion', 'sgd'])}", f"train.state={draw.choice(['auto', 'i8', 'bf16', 'f32'])}",
                 f"train.grad={draw.choice(['auto', 'f32'])}", f"run.replicas={draw.choice([1, 1, 1, 2])}"]
        machine = draw.choice(machines)
        counted, seconds = page.ask("formula", machine=machine, settings=words, threads=1, **given)
        answer, rule_s = page.ask("plan", quick=not whole, machine=machine, settings=words, threads=1, **given)
        if "plan" in answer:
            asked_of.add(model)
        slow = max(slow, seconds)
        # The page shows whichever of the two comes first.
        if not whole:
            slow_rule, late = max(slow_rule, rule_s), late + (seconds + rule_s > 2)
        refused += "error" in answer
        if "plan" not in answer and "error" not in answer or "formula" not in counted and counted != answer:
            checks.check(f"random {model} {machine} {words}", False, str(counted if "formula" not in counted else answer)[:200])
        # No plan is faster than its bound by counting.
        if "plan" in answer and json.loads(answer["plan"])["step_ns"] < 0.999 * counted["formula"]["least_ns"]:
            unlike.append((model, machine, words))
    checks.check(f"{firsts} random settings answered first and {searched} searched: the first answer within 2 s", slow < 2,
                 f"{refused} refused, the slowest formula {slow:.2f} s, the slowest rule {slow_rule:.1f} s; planned: {len(asked_of)} models")
    checks.check("no plan is faster than the formula says", not unlike, str(unlike[:2]))
    return {"first": firsts, "searched": searched, "refused": refused, "slowest_first_s": round(slow, 2),
            "slowest_rule_s": round(slow_rule, 1), "rule_over_2_s": late}


def memory_of_many(checks, plans):
    page = Program()
    words = ["model.preset=llama3-1b", "train.seq_len=2048", "train.tokens_per_step=16384", "memory.device=6GiB", "memory.host=32GiB",
             "shape.chunk_tokens=2048", "shape.rounds=2", "shape.first_round_chunks=4", "shape.head_tokens=1024"]
    page.ask("plan", machine="h200", settings=words, threads=1)
    page.ask("plan", machine="h200", settings=words, threads=1)
    before = page.ask("memory")[0]["bytes"]
    for _ in range(plans):
        page.ask("plan", machine="h200", settings=words, threads=1)
    after = page.ask("memory")[0]["bytes"]
    checks.check(f"memory after {plans} plans", after <= before * 1.1, f"{before >> 20} MiB, then {after >> 20} MiB")
    return {"plans": plans, "mib_before": before >> 20, "mib_after": after >> 20}


def speed_in_chromium(checks, program, settings, timed):
    """The largest of the page's own settings, each beside the command line with one thread just before."""
    page, ratios, longest = Browser(), [], 0
    for machine, words in settings:
        with tempfile.TemporaryDirectory() as work:
            wanted, native_s = native(program, machine, words, work)
        asked = dict(word.split("=") for word in words)
        page.set(model=asked["model.preset"], seq=asked["train.seq_len"], step=asked["train.tokens_per_step"], machine=machine,
                 device=asked["memory.device"].removesuffix("GiB"), host=asked["memory.host"].removesuffix("GiB"))
        page.plan()
        page_s = int(page.said("planMs")) / 1000
        ratios.append(page_s / native_s)
        longest = max(longest, page_s)
        checks.check(f"in Chromium: {' '.join(words)}", page.value() == [wanted["tokens_per_s"]] and
                     (not timed or page_s <= 1.5 * native_s and page_s <= 30),
                     f"{page_s:.1f} s, {page_s / native_s:.2f} x the command line's {native_s:.1f} s")
    page.driver.quit()
    return {"times_of_native": [round(r, 2) for r in ratios], "longest_s": round(longest, 1)}


class Browser:
    def __init__(self, width=1440, fragment=""):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},1400"):
            options.add_argument(argument)
        options.binary_location = subprocess.run(["sh", "-c", "command -v chromium || command -v google-chrome"], capture_output=True,
                                                 text=True).stdout.strip()
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
        self.driver.get((BUILD / "sluice.html").as_uri() + fragment)
        self.until("ready", "yes", 30)

    def said(self, name):
        return self.driver.execute_script("return document.body.dataset[arguments[0]]", name)

    def until(self, name, value, seconds):
        end = time.monotonic() + seconds
        while self.said(name) != value:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} is {self.said(name)}, not {value}, after {seconds} s")
            time.sleep(0.05)

    def find(self, name):
        return self.driver.find_element("id", name)

    def set(self, **values):
        for name, value in values.items():
            self.driver.execute_script("const e = document.getElementById(arguments[0]); e.value = arguments[1];"
                                       "e.dispatchEvent(new Event('input'))", name, str(value))

    def plan(self, seconds=240):
        before = self.driver.execute_script("document.getElementById('plan').click(); return plan.run ?? 0")
        end = time.monotonic() + 5  # it begins when a file that was brought has been read, and may have ended before one looks
        while self.driver.execute_script("return plan.run ?? 0") == before and time.monotonic() < end:
            time.sleep(0.02)
        self.until("busy", "no", seconds)

    def value(self):
        """Tokens per second of each answer that is shown."""
        return [float(x) for x in self.driver.execute_script(
            "return [...document.querySelectorAll('.answer .tiles span:first-child b')].map(b => b.dataset.value)")]

    def errors(self):
        return [entry["message"][:300] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


SMALL = {"model": "tiny", "seq": 512, "step": 4096, "machine": "laptop", "device": 2, "host": 8}


def in_the_browser(checks, shots):
    import axe_core_python
    from axe_selenium_python import Axe

    found = {}
    page = Browser()
    page.set(**SMALL)
    page.plan()
    checks.check("a plan is shown", len(page.value()) == 1, str(page.value()))
    time.sleep(1)
    frame = page.driver.find_element("css selector", ".answer iframe")
    page.driver.switch_to.frame(frame)
    page.driver.execute_script("document.getElementById('zoom-in').click()")
    shown = float(page.find("range").get_attribute("data-to")) - float(page.find("range").get_attribute("data-from"))
    checks.check("the timeline zooms inside the page", shown < 0.6, f"{shown:.2f} of the step is shown")
    page.find("pace").send_keys("10 s")
    page.driver.execute_script("document.getElementById('play').click()")
    time.sleep(1.5)
    page.driver.execute_script("document.getElementById('play').click()")
    moment, words = int(page.find("moment").get_attribute("value")), page.find("happening").text
    checks.check("the step plays", 50 < moment < 1000 and "compute" in words, f"moment {moment} of 1000; {words[:80]!r}")
    # Enter chooses what compute does in the middle, l the next lane: what it reads, writes and waits for.
    page.find("timeline").send_keys("0\ue007n")
    task = page.find("task").text
    checks.check("a task says what it reads, writes and waits for", all(word in task for word in ("reads", "writes", "waits for")),
                 repr(task[:120]))
    page.driver.switch_to.default_content()
    # What is saved, by name, type and size; the plan's JSON as text.
    page.driver.execute_script("window.kept = []; const make = URL.createObjectURL; URL.createObjectURL = b => { kept.push(b); return make.call(URL, b); };"
                               "for (const b of document.querySelectorAll('.answer .buttons button')) b.click()")
    kept = []
    for _ in range(50):  # the PNG is drawn and packed beside the page
        if len(kept) == 4:
            break
        time.sleep(0.2)
        kept = page.driver.execute_script("return kept.map(b => [b.type, b.size])")
    types = [kind for kind, size in kept if size > 5000]
    saved = json.loads(page.driver.execute_async_script("kept[0].text().then(arguments[0])"))
    checks.check("JSON, page, SVG and PNG are saved", types == ["application/json", "text/html", "image/svg+xml", "image/png"] and
                 [saved["tokens_per_s"]] == page.value(), str(kept))
    kept = page.driver.execute_script("return location.hash")
    page.driver.execute_script("document.getElementById('beside').click()")
    page.set(device=1)
    page.plan()
    checks.check("two settings stand beside each other", len(page.value()) == 2, str(page.value()))
    with tempfile.TemporaryDirectory() as work:
        config = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "intermediate_size": 512, "vocab_size": 1000, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
        for name, text in (("config.json", json.dumps(config)), ("broken.json", '{"model_type": "llama", ')):
            path = Path(work) / name
            path.write_text(text)
            page.find("model-file").send_keys(str(path))
            time.sleep(0.3)
            page.plan()
            error = page.driver.execute_script("return [...document.querySelectorAll('.answer .error')].map(e => e.textContent).join()")
            checks.check(f"{name} is {'planned for' if name == 'config.json' else 'refused'}", bool(error) == (name == "broken.json"), error[:120])
            page.set(model="tiny")
        card = Path(work) / "card.toml"
        card.write_text(subprocess.run([PROGRAM, "machines", "rtx4090"], capture_output=True, text=True).stdout)
        page.find("machine-file").send_keys(str(card))
        time.sleep(0.3)
        page.plan()
        checks.check("a machine file is planned for", len(page.value()) == 2, str(page.value()))
        page.set(machine="laptop")
        subprocess.run([PROGRAM, "doctor", "--calibrate", "--machine-file", "mine.toml"], cwd=work, check=True, capture_output=True)
        page.find("machine-file").send_keys(str(Path(work) / "mine.toml"))
        time.sleep(0.3)
        page.plan()
        checks.check("what doctor wrote of this machine is planned for", len(page.value()) == 2, str(page.value()))
    page.driver.execute_script("document.getElementById('beside').click()")
    page.set(**SMALL)
    page.driver.execute_script("document.querySelector('#rates summary').click()")
    page.find("link-slider").send_keys("\ue012" * 3)
    page.find("flops").send_keys("12.5")
    page.set(model="family:qwen3", device=6, host=64, seq=128, step=256)
    page.set(config=page.find("config").get_attribute("value").replace('"num_hidden_layers": 32', '"num_hidden_layers": 3'))
    page.plan()
    command, address = page.find("command").text, page.driver.execute_script("return location.hash")
    checks.check("what the sliders set stands in the command line and in the address", "products=12.5e12" in command and
                 command.count("links.") == 2 and "flops=12.5" in address and "link=" in address, command.replace("\n", ""))
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "qwen3.json").write_text(page.find("config").get_attribute("value"))
        typed = [PROGRAM, *shlex.split(command.replace("\\\n", ""))[1:]]
        subprocess.run([*typed, "--json", "plan.json", "--run-dir", "run", "--set", "data.cache=cache"], cwd=work, check=True,
                       capture_output=True)
        wanted = json.loads((Path(work) / "plan.json").read_text())["tokens_per_s"]
    checks.check("a family's config.json that was edited, at rates that were set, is what that command line plans",
                 page.value() == [wanted], f"{page.value()} beside {wanted}")
    page.set(**SMALL, devices=2)
    page.driver.execute_script("document.getElementById('own-rates').click(); document.getElementById('plan').click()")
    said, end = "", time.monotonic() + 20
    while not said and time.monotonic() < end:
        said = page.driver.execute_script("return document.querySelector('.answer[data-kind=formula]')?.textContent ?? ''")
    checks.check("counting names the memories of several cards", "device memory of each, at least" in said, repr(said))
    page.until("busy", "no", 120)
    page.set(devices=1)
    checks.check("no error on the console", not (errors := page.errors()), str(errors))
    asked = page.driver.execute_script("return performance.getEntriesByType('resource').map(e => e.name).filter(n => !/^(blob|data):/.test(n))")
    checks.check("nobody is asked for anything", not asked, str(asked))
    for theme in ("light", "dark"):
        page.driver.execute_script("setTheme(arguments[0])", theme)
        axe = Axe(page.driver, str(Path(axe_core_python.__file__).with_name("axe.min.js")))  # the newer of the two
        axe.inject()
        serious = [v for v in axe.run(options="{iframes: false}")["violations"] if v["impact"] in ("serious", "critical")]
        page.driver.switch_to.frame(page.driver.find_element("css selector", ".answer iframe"))
        axe.inject()
        serious += [v for v in axe.run(options="{iframes: false}")["violations"] if v["impact"] in ("serious", "critical")]
        page.driver.switch_to.default_content()
        checks.check(f"axe-core finds nothing serious in the page and its plan, {theme}", not serious,
                     "; ".join(f"{v['id']}: {v['nodes'][0]['html'][:90]}" for v in serious))
    page.driver.quit()

    page = Browser(fragment=kept)
    page.until("busy", "no", 120)
    checks.check("the address keeps the question", page.find("model").get_attribute("value") == "tiny" and len(page.value()) == 1)
    # The largest of the page's own settings: progress at once, an end at once.
    page.set(model="llama3-8b", seq=8192, step=131072, machine="h200", device=16, host=110)
    page.driver.execute_script("document.getElementById('plan').click()")
    time.sleep(1)
    doing = page.find("doing").text
    checks.check("progress is told from the first second", "s" in doing and doing != "searching", doing)
    began = time.monotonic()
    page.driver.execute_script("document.getElementById('stop').click()")
    page.until("busy", "no", 5)
    stopped = time.monotonic() - began
    checks.check("a search ends at once when it is stopped", stopped < 0.5, f"{stopped:.2f} s")
    page.plan()
    found = {"first_s": int(page.said("formulaMs")) / 1000, "rule_s": int(page.said("firstMs")) / 1000, "plan_s": int(page.said("planMs")) / 1000}
    checks.check("the first answer comes within 2 s", found["first_s"] < 2, f"{found['first_s']} s, by the rule {found['rule_s']} s")
    checks.check("8B is planned in Chromium", len(page.value()) == 1, f"plan {found['plan_s']} s")
    checks.check("what the search found takes its place in the curve", page.driver.execute_script(
        "return document.querySelectorAll('#curve circle.searched').length") == 1)
    listed = {}
    for key in page.driver.execute_script("return [...document.querySelectorAll('#listed select')].map(one => listed[one.id].name)"):
        said = subprocess.run([PROGRAM, "keys", key], capture_output=True, text=True, check=True).stdout
        own = re.search(rf"^{re.escape(key)} = .*\n(    .*\n)*", said, re.MULTILINE).group()  # others may speak of it
        listed[key] = re.findall(r"\(([^()]*)\)$", own.strip())[0].split(", ")
    shown = {f"train.{name}": options for name, options in page.driver.execute_script(
        "return [...document.querySelectorAll('#listed select')].map(one => [one.id, [...one.options].map(o => o.value)])")}
    checks.check("optimizers and number formats are the program's", len(shown) == 5 and shown == listed, str(shown))
    lacking = page.driver.execute_script(
        "const shown = Object.values(listed).map(key => key.name); return choices.keys.filter(key => key.of_step && "
        "!kOwnControls.includes(key.name) && !shown.includes(key.name)).map(key => key.name)")
    checks.check("every key of a step has a control", lacking == [], str(lacking))
    page.driver.execute_script("document.getElementById('train.clip_norm').value = '0.5'")
    checks.check("and takes part in what is asked", "train.clip_norm=0.5" in page.driver.execute_script("return settings()"))
    page.driver.execute_script("document.getElementById('train.clip_norm').value = ''")
    page.set(machine="h200", device=60)
    page.set(machine="laptop")
    small = float(page.find("device").get_attribute("value"))
    page.set(machine="h200")
    checks.check("a small card looked at in passing leaves the memory that is wanted", small < 60 and page.find("device").get_attribute("value") == "60",
                 f"{small} GiB, then {page.find('device').get_attribute('value')}")
    slowest = 0
    for model, host in (("llama3-8b", 64), ("llama3-1b", 32), ("llama3-32b", 256), ("llama3-15b", 110), ("llama3-1b", 110), ("llama3-8b", 110)):
        for machine in ("h200", "rtx4090"):
            page.set(model=model, machine=machine, device=12, host=host)
            slowest = max(slowest, float(page.said("curveMs")))
            here, drawn = page.find("curve-here").text, page.driver.execute_script("return document.querySelectorAll('#curve circle, #curve .no').length")
            checks.check(f"the curve of {model} on {machine} is there at once", drawn >= 3 and "tokens/s" in here, here)
    checks.check("curves answer within 100 ms", slowest < 100, f"{slowest} ms")
    page.set(model="llama3-8b", machine="rtx4090", device=12, host=96)
    words = page.find("curve-words").text
    checks.check("with other host memory the most that was planned for and is there answers", "with 64 GiB" in words and "You have 96 GiB" in words and
                 "tokens/s" in page.find("curve-here").text, words)
    page.set(host=110)
    found["curve_ms"] = slowest
    rows = page.driver.execute_script("return [...document.querySelectorAll('#cards tr')].map(r => r.textContent)")
    checks.check("six cards stand by price and speed", len(rows) == 7, rows[1])
    page.driver.execute_script("const i = document.querySelector('#cards input[aria-label*=\"H200\"]'); i.value = '0.01';"
                               "i.dispatchEvent(new Event('input')); i.dispatchEvent(new Event('change'))")
    first = page.driver.execute_script("return document.querySelector('#cards tr:nth-child(2) th').textContent")
    checks.check("a price that is typed sorts the cards anew, and the address keeps it", "H200" in first and "price.h200=0.01" in
                 page.driver.execute_script("return location.hash"), first)
    page.set(**SMALL)
    page.driver.execute_script("document.getElementById('search-curve').click()")
    end = time.monotonic() + 120
    while page.find("search-curve").text != "Search this curve" and time.monotonic() < end:
        time.sleep(0.2)
    drawn = page.driver.execute_script("return document.querySelectorAll('#curve circle.searched, #curve .no').length")
    page.driver.execute_script("document.getElementById('search-cards').click()")
    end = time.monotonic() + 120
    while page.find("search-cards").text == "Stop" and time.monotonic() < end:
        time.sleep(0.2)
    speeds = page.driver.execute_script("return [...document.querySelectorAll('#cards tr td:nth-child(3)')].map(c => c.textContent)")
    checks.check("other settings are planned on all cards", len(speeds) == 6 and all(s.replace(",", "").isdigit() for s in speeds), str(speeds))
    checks.check("a curve of other settings is searched", drawn >= 6, f"{drawn} points; {page.find('curve-here').text}")
    page.driver.execute_script("document.getElementById('start-tour').click()")
    for step in range(6):
        page.until("busy", "no", 240)
        title = page.driver.execute_script("return document.querySelector('#tour h2').textContent")
        checks.check(f"tour: {title}", len(page.value()) == 1 or step == 4, str(page.value()))
        if step < 5:
            page.driver.execute_script("[...document.querySelectorAll('#tour button')].find(b => b.textContent === 'Next').click()")
            time.sleep(0.2)
    for width in (360, 1280, 3840) if shots else ():
        for theme in ("light", "dark"):
            page.driver.set_window_size(width, 1600)
            page.driver.execute_script("setTheme(arguments[0])", theme)
            time.sleep(0.5)
            wide = page.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            checks.check(f"fits {width} pixels, {theme}", wide <= 0, f"{wide} too wide")
            page.driver.save_screenshot(str(BUILD / f"page-{width}-{theme}.png"))
    checks.check("no error on the console of the tour", not (errors := page.errors()), str(errors))
    page.driver.quit()
    return found


def main():
    global PROGRAM
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="MACHINE")
    parser.add_argument("--program", default=str(ROOT / "build/cpu/cli/sluice"))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    PROGRAM = arguments.program
    checks = Checks()
    size = (BUILD / "sluice.html").stat().st_size
    checks.check("the page is one file of at most 4 MB", size <= 4_000_000, f"{size:,} bytes")
    values = {"bytes": size}
    values["native"] = beside_the_command_line(checks, arguments.program, SETTINGS[-2:] if arguments.quick else SETTINGS)
    values["random"] = random_settings(checks, 20 if arguments.quick else 200, 2 if arguments.quick else 20)
    values["memory"] = memory_of_many(checks, 5 if arguments.quick else 50)
    values["chromium"] = speed_in_chromium(checks, arguments.program, SETTINGS[3:4] if arguments.quick else SETTINGS[:6], not arguments.quick)
    values["browser"] = in_the_browser(checks, True)
    of = checks.passed + len(checks.failed)
    print(f"{checks.passed} passed, {len(checks.failed)} failed" + "".join(f"\n  {what}" for what in checks.failed))
    if arguments.record:
        record("web", {"check": "the planner in a page: scripts/web test"}, {"passed": checks.passed, "of": of, **values}, arguments.record,
               "scripts/web test")
    return 1 if checks.failed else 0


sys.exit(main())

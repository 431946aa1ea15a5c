# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import collections
import contextlib
import importlib
import json
import os
import pathlib
import queue
import re
import signal
import tempfile
import threading
import time
import tomllib
import warnings
from typing import Any, Callable, Iterable, Iterator, Mapping

from . import _options, _program, _views
from ._errors import Error
from ._names import named

Callback = Callable[[dict[str, Any]], object]


class Run:
    """What a run left.

    directory    the run's: checkpoints/latest and checkpoints/best in it are folders that transformers loads
    metrics      a record for each step that was made, as in its metrics.jsonl
    """

    def __init__(self, directory: pathlib.Path, metrics: list[dict[str, Any]]):
        self.directory = directory
        self.metrics = metrics

    def _repr_html_(self) -> str:
        picture, routers = self.directory / "loss.svg", self.directory / "routers.html"
        if not picture.exists():
            return repr(self)
        out = picture.read_text(encoding="utf-8")
        return out + _views.frame(routers.read_text(encoding="utf-8")) if routers.exists() else out

    def __repr__(self) -> str:
        return f"<sluice.Run {self.directory}: {len(self.metrics)} steps>"


def _flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        # A key whose own value is a mapping.
        if isinstance(value, Mapping) and before + key != "data.template_kwargs":
            out |= _flat(value, f"{before}{key}.")
        else:
            out[before + key] = value
    return out


def _records(data: Any) -> Iterator[dict[str, Any]]:
    """Of lists and generators, and of what goes through records in batches: tables of Arrow, data sets of Hugging Face. Data frames
    of pandas and polars are taken as their rows; what they have no value for is null."""
    if isinstance(data, (str, bytes, os.PathLike)):
        raise TypeError(f"data is {type(data).__name__}; allowed are records. Files are named in the configuration: data.paths")
    if isinstance(data, Mapping):
        names = ", ".join(map(repr, list(data)[:4]))
        raise TypeError(f"data is a mapping with {names}; allowed are records. Of a data set's parts name one, such as data['train']; "
                        "columns become records by [dict(zip(data, row)) for row in zip(*data.values())]")
    if hasattr(data, "to_pylist"):  # pyarrow
        data = data.to_pylist()
    elif hasattr(data, "to_dicts"):  # polars
        data = data.to_dicts()
    elif hasattr(data, "columns") and hasattr(data, "to_json"):  # pandas, whose missing texts are NaN
        data = json.loads(data.to_json(orient="records"))
    if not isinstance(data, Iterable):
        raise TypeError(f"data is {type(data).__name__}; allowed are records, such as a list of mappings")
    for number, record in enumerate(data):
        if not isinstance(record, Mapping):
            raise TypeError(f"data: record {number} is {type(record).__name__}; allowed are mappings such as {{'text': ...}}")
        yield dict(record)


class _Log:
    """The lines of a run's metrics.jsonl that were not there before."""

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._known = set(path.read_bytes().splitlines()) if path.exists() else set()
        self._file = self._at = -1

    def new(self) -> list[dict[str, Any]]:
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._file or status.st_size < self._at:  # a run that goes on writes it anew
                    self._file, self._at = status.st_ino, 0
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[:text.rfind(b"\n") + 1]
        self._at += len(whole)
        lines = [line for line in whole.splitlines() if line not in self._known]
        self._known.update(lines)
        return [json.loads(line) for line in lines]


class _Bar:
    """tqdm's, where that is installed: it knows terminals and notebooks."""

    def __init__(self, wanted: bool):
        self._bar: Any = None
        if wanted:
            with contextlib.suppress(ImportError):
                self._bar = importlib.import_module("tqdm.auto").tqdm(unit="step", desc="starting")

    def show(self, metrics: dict[str, Any], steps: int | None) -> None:
        if self._bar is None or "loss" not in metrics:
            return
        self._bar.total = steps
        self._bar.n = metrics["step"]
        self._bar.set_description("training", refresh=False)
        self._bar.set_postfix(loss=metrics["loss"], refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class Trainer:
    """A whole run: everything of `sluice train`, in a process of its own, which has the caps for itself.

        sluice.Trainer({"model.path": "SmolLM2-135M", "memory.device": "8GiB", "train.epochs": 2, "run.dir": "runs/chats"},
                       data=[{"prompt": "...", "completion": "..."}]).fit()

    config   keys of the configuration (`sluice keys`), nested or with dots; or a TOML file
    data     records of any kind that docs/data.md lists, instead of data.paths: a list, a generator, a data frame of pandas or polars,
             a table of pyarrow, a data set of Hugging Face. A run goes on where the same records come again in the same order.
    """

    @named
    def __init__(self, config: Mapping[str, Any] | str | os.PathLike[str], *, data: Any = None):
        if isinstance(config, Mapping):
            self._file, self._keys = None, _flat(config)
            if data is not None and "data.paths" in self._keys:
                raise ValueError("data.paths and data are both given; keep one")
        else:
            self._file, self._keys = pathlib.Path(config), {}
        self._data = data

    def _directory(self) -> pathlib.Path:
        keys = self._keys
        if self._file is not None:
            with open(self._file, "rb") as file:
                keys = _flat(tomllib.load(file))
        return pathlib.Path(keys.get("run.dir", "runs/latest"))

    @named
    def fit(self, callbacks: Iterable[Callback] = (), *, progress: bool = True) -> Run:
        """Trains until the run is done; a run that is there goes on from its newest checkpoint.

        Callbacks are called with every record of metrics.jsonl: of each step, with loss, gradient_norm, learning_rate and more, and
        with heldout_loss where it was evaluated. `wandb.log` is one. What one raises ends the run after the step in progress, saved, and
        comes out of here; so does Ctrl-C. What the run notes and warns of is a UserWarning. `progress` shows a bar where tqdm is installed.
        """
        callbacks = list(callbacks)
        directory, metrics = self._directory(), list[dict[str, Any]]()
        log = _Log(directory / "metrics.jsonl")
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(_Bar(progress)) as bar:
            with _process(self._arguments(pathlib.Path(folder))) as process:
                def take() -> None:
                    process.warn()
                    for line in log.new():
                        metrics.append(line)
                        bar.show(line, process.steps())
                        for callback in callbacks:
                            callback(line)
                while process.runs():
                    take()
                    time.sleep(0.05)
                take()
        return Run(directory, metrics)

    def _arguments(self, folder: pathlib.Path) -> list[str]:
        keys, out = dict(self._keys), list[str]()
        if self._data is not None:
            # Its name is part of what decides which documents are held out.
            with open(folder / "records.jsonl", "w", encoding="utf-8") as file:
                for number, record in enumerate(_records(self._data)):
                    try:
                        file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
                    except (TypeError, ValueError) as why:
                        raise TypeError(f"data: record {number} is no JSON: {why}") from None
            keys["data.paths"] = [str(folder / "records.jsonl")]
        if self._file is not None:
            return [str(self._file), *(part for key, value in keys.items() for part in ("--set", f"{key}={_options.toml(value)}"))]
        # Paths in a file are relative to it; those of a mapping are relative to the working directory.
        (folder / "run.toml").write_text("", encoding="utf-8")
        out.append(str(folder / "run.toml"))
        for key, value in keys.items():
            out += ["--set", f"{key}={value if isinstance(value, str) else _options.toml(value)}"]
        return out


class _Process:
    """`sluice train`, and what it says."""

    def __init__(self, arguments: list[str]):
        # In a group of its own: a terminal's Ctrl-C reaches this process alone, which hands it on.
        self._process = _program.start([_program.path(), "train", *arguments], process_group=0)
        self._said: dict[str, collections.deque[str]] = {name: collections.deque(maxlen=200) for name in ("stdout", "stderr")}
        self._notices: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._said]
        try:
            for reader in self._readers:
                reader.start()
        except RuntimeError as error:
            self._process.kill()
            with self._process:  # waits for it, and closes its pipes
                pass
            raise Error(f"the run needs two threads: {error}", "device", {}) from error

    def _read(self, name: str) -> None:
        for line in getattr(self._process, name):
            self._said[name].append(line)
            # How a rate was chosen is no warning.
            if notice := re.match(r"(?:warning: |note {5}(?!train\.learning_rate = auto))(.*)", line):
                self._notices.put(notice[1])

    def warn(self) -> None:
        """Of what the program noticed since this was last called."""
        while not self._notices.empty():
            warnings.warn(self._notices.get(), stacklevel=4)

    def runs(self) -> bool:
        return self._process.poll() is None

    def steps(self) -> int | None:
        """Of the whole run, as its lines say it: "step 3/100"."""
        for line in reversed(list(self._said["stdout"])):
            if step := re.match(r"step \d+/(\d+) ", line):
                return int(step[1])
        return None

    def stop(self) -> None:
        """After the step in progress, saved; a second time at once."""
        if self.runs():
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for name in self._said:
            getattr(self._process, name).close()

    def check(self) -> None:
        status = self._process.returncode
        if status in (_program.INTERRUPTED, _program.STOPPED):
            raise Error("the run was asked to stop from elsewhere; the same call goes on", "cancelled", {"status": str(status)})
        if status not in (0, _program.NOTHING_LEFT):
            raise Error(_program.why(status, "".join(self._said["stderr"])), "failed", {"status": str(status)})


@contextlib.contextmanager
def _process(arguments: list[str]) -> Iterator[_Process]:
    process = _Process(arguments)
    try:
        yield process
    except BaseException:
        process.stop()
        try:
            process.end()
        except KeyboardInterrupt:
            process.stop()
            process.end()
        raise
    process.end()
    process.warn()
    process.check()

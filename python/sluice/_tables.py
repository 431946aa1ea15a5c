# SPDX-License-Identifier: Apache-2.0
"""Tables of many plans, as the program makes them."""
from __future__ import annotations

import csv
import importlib
import json
import os
import pathlib
from typing import Any, Sequence

from . import _program
from ._names import named

Sizes = int | str | Sequence[int | str]


class Records(list[dict[str, Any]]):
    """A row of a table each, by the names of its columns."""

    def frame(self) -> Any:
        """As a DataFrame of pandas."""
        return importlib.import_module("pandas").DataFrame(self)


def _settings(settings: dict[str, object] | None) -> list[str]:
    return [part for key, value in (settings or {}).items() for part in ("--set", f"{key}={value}")]


@named
def compare(model: str, *, machines: str | Sequence[str] = "all", host_mem: Sizes | None = None, device_mem: int | str | None = None,
            seq_len: int | None = None, tokens_per_step: int | None = None, price: float | str | None = None,
            tokens: int | str | None = None, settings: dict[str, object] | None = None) -> Records:
    """One model planned for many machines: speed, what binds, memory, and where it does not fit what is missing.

    As `sluice compare`: `model` is a preset or the path of a config.json, and `settings` are keys of the configuration.
    """
    given: dict[str, object] = dict(machines=machines, host_mem=host_mem, device_mem=device_mem, seq_len=seq_len,
                                    tokens_per_step=tokens_per_step, price=price, tokens=tokens)
    page = json.loads(_program.run("compare", [model, "--json", *_program.options(given), *_settings(settings)]))
    return Records(page["comparison"]["cards"])


def estimate(model: str, *, settings: dict[str, object] | None = None, **options: object) -> dict[str, Any]:
    """What a model takes, with formulas, as `sluice estimate --json`; `options` are the command's, such as seq_len=8192."""
    page: dict[str, Any] = json.loads(_program.run("estimate", [model, "--json", *_program.options(options), *_settings(settings)]))
    return page


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text or None


@named
def sweep(model: str | Sequence[str], *, out: str | os.PathLike[str], seq_len: Sizes, device_mem: Sizes, host_mem: Sizes | None = None,
          tokens_per_step: int | None = None, machine: str | None = None, settings: dict[str, object] | None = None) -> Records:
    """A grid of models, sequence lengths and caps, planned: as `sluice sweep`.

    The folder `out` keeps the table and its heatmaps; the same call goes on where it was stopped. Ranges of caps are written
    "6GiB:24GiB:2GiB".
    """
    given: dict[str, object] = dict(model=model, out=os.fspath(out), seq_len=seq_len, device_mem=device_mem, host_mem=host_mem,
                                    tokens_per_step=tokens_per_step, machine=machine)
    _program.run("sweep", [*_program.options(given), *_settings(settings)])
    with open(pathlib.Path(out) / "sweep.csv", newline="", encoding="utf-8") as file:
        return Records({name: _number(text) for name, text in row.items()} for row in csv.DictReader(file))

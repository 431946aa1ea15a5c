# SPDX-License-Identifier: Apache-2.0
"""What a Plan shows: as arrays, and as a page in a notebook."""
from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ._sluice import Plan


class Memory(NamedTuple):
    """What a memory holds over one step: at `seconds[i]`, until the next, `bytes[kind][i]` of each kind."""

    seconds: npt.NDArray[np.float64]
    bytes: dict[str, npt.NDArray[np.int64]]


class Lane(NamedTuple):
    """What a lane does over one step, in its order: `names[i]` from `begin[i]` to `end[i]`, in seconds."""

    names: list[str]
    begin: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]


def memory(plan: Plan, tier: str) -> Memory:
    of = plan.data["memory"]
    if tier not in of:
        raise ValueError(f"tier = {tier}: allowed are {', '.join(of)}")
    # Each number is the difference to the one before.
    return Memory(np.cumsum(of[tier]["ns"]) / 1e9, {kind: np.cumsum(held, dtype=np.int64) for kind, held in of[tier]["kinds"].items()})


def timeline(plan: Plan) -> dict[str, Lane]:
    actions = plan.data["actions"]
    lanes = {}
    for lane in actions["lanes"]:
        took = np.asarray(lane["ns"], dtype=np.float64)
        end = np.cumsum(np.asarray(lane["gap"], dtype=np.float64) + took)
        names = [actions["what"][what] + actions["where"][where] for what, where in zip(lane["what"], lane["where"])]
        lanes[lane["lane"]] = Lane(names, (end - took) / 1e9, end / 1e9)
    return lanes


def page(plan: Plan) -> str:
    return frame(plan.html())


def frame(page: str) -> str:
    return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 800px; border: 0"></iframe>'

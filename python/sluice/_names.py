# SPDX-License-Identifier: Apache-2.0
"""A call with an argument that there is not names it, and the one that may have been meant."""
from __future__ import annotations

import difflib
import functools
import inspect
import re
from typing import Any, Callable, ParamSpec, TypeVar

from ._options import of_sections
from ._sluice import key_meant_by

P = ParamSpec("P")
T = TypeVar("T")


def _taken(function: Callable[..., Any]) -> tuple[list[str], bool]:
    """The arguments, and whether some are keys of the configuration."""
    if (texts := getattr(function, "__nb_signature__", None)) is not None:
        # The library's: of these inspect knows nothing, or, in newer versions, no names.
        signature = str(texts[0][0])
        names = [name for name in re.findall(r"[(,] *(\w+) *:", signature) if name != "self"]
        return (names + list(of_sections("data", "data")), True) if "**" in signature else (names, False)
    return [name for name in inspect.signature(function).parameters if name != "self"], hasattr(function, "__signature__")


def named(function: Callable[P, T]) -> Callable[P, T]:
    taken, keys = _taken(function)
    called = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> T:
        for name in given:
            if name not in taken:
                key = key_meant_by(name) if keys else None
                near = difflib.get_close_matches(name, taken, 1) if not key else [own for own in taken if own == key.split(".")[1]]
                meant = f"; did you mean {near[0]}?" if near else f"; the key {key} of a Trainer is meant;" if key else ";"
                raise TypeError(f"{called}: there is no argument {name}{meant} allowed are {', '.join(taken)}")
        return function(*args, **given)

    return call

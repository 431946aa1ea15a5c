# SPDX-License-Identifier: Apache-2.0
"""Keys of the configuration as keywords: their names, values and meanings are the program's table (`sluice keys`)."""
from __future__ import annotations

import inspect
import json
import os
import re
from typing import Any, Callable, Mapping, TypedDict, TypeVar

from . import _sluice

_KEYS: dict[str, dict[str, str]] = {key["name"]: key for key in _sluice.keys()}
_OTHER_NAMES = {"gradients": "grad", "master_weights": "master", "deferred_updates": "deferred_update"}
F = TypeVar("F", bound=Callable[..., Any])


def toml(value: Any) -> str:
    # A JSON string, number or truth value is TOML's, and so is a list of them. Scalars of NumPy are numbers.
    return json.dumps(value, ensure_ascii=False, default=lambda other: other.item() if hasattr(other, "item") else os.fspath(other))


def of_sections(kind: str, *sections: str) -> dict[str, str]:
    """The keywords of keys of a kind ("step", "data"), and their keys: rank of adapter.rank."""
    return {name.split(".")[1]: name.rpartition(".")[0] if name.count(".") > 1 else name
            for name, key in _KEYS.items() if key["of"] == kind and name.split(".")[0] in sections}


def _setting(key: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        if key not in _KEYS:
            return [setting for name, one in value.items() for setting in _setting(f"{key}.{name}", one)]
        value = [f"{name}={one}" for name, one in value.items()] if "a list" in _KEYS[key]["allowed"] else toml(value)
    elif isinstance(value, tuple):
        value = list(value)
    return [f"{key}={toml(value)}"]


def settings(keywords: Mapping[str, str], given: Mapping[str, Any], call: str) -> list[str]:
    """Of a call's keywords, as `--set` takes them."""
    out: list[str] = []
    for name, value in given.items():
        key = keywords.get(_OTHER_NAMES.get(name, name))
        if key is None:
            meant = _sluice.key_meant_by(name)
            hint = f"; the key {meant} of a Trainer is meant" if meant and meant not in keywords.values() else \
                f"; {meant.split('.')[1]} is meant" if meant else ""
            raise TypeError(f"{call}() got an unexpected keyword argument '{name}'{hint}")
        out += _setting(key, value)
    return out


def data_settings(given: Mapping[str, Any]) -> list[str]:
    return settings(of_sections("data", "data"), given, "Dataset.text")


STEP = of_sections("step", "train", "shape")
StepOptions = TypedDict("StepOptions", {name: Any for name in STEP}, total=False)  # type checkers read stub()
_ADAPTER = of_sections("step", "adapter")


def _meaning(name: str, key: str) -> str:
    row = _KEYS.get(key)
    return f"    {name:<20}{row['meaning']} ({row['allowed']}; {row['value']})" if row else ""


def documented(keywords: Mapping[str, str]) -> Callable[[F], F]:
    """Gives a function of **options the keywords, in its signature and its text."""
    def add(function: F) -> F:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind != p.VAR_KEYWORD]
        more = [name for name in keywords if name not in own.parameters]
        others = [name for name, usual in _OTHER_NAMES.items() if usual in more]
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in more + others]
        function.__signature__ = own.replace(parameters=[*named, *added])  # type: ignore[attr-defined]
        lines = "\n".join(_meaning(name, keywords[name]) for name in more)
        function.__doc__ = (function.__doc__ or "").rstrip() + f"\n\n    Where they are not given, these are as the key is by default:\n\n{lines}\n"
        return function
    return add


class Adapter:
    """Low-rank adapters (LoRA), trained in place of the weights: docs/adapters.md."""

    @documented(_ADAPTER)
    def __init__(self, rank: int = 16, **options: Any):
        self._options: dict[str, Any] = {"rank": rank, **options}
        self.settings = settings(_ADAPTER, self._options, "Adapter")

    def __repr__(self) -> str:
        return f"sluice.Adapter({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"


def _type(key: str) -> str:
    allowed = _KEYS[key]["allowed"] if key in _KEYS else ""
    words = re.sub(r"^auto, ", "", allowed)
    kind = ("int" if words.startswith("whole") else "float" if words.startswith("numbers") else "bool" if words in ("true, false", "on, off")
            else "Sequence[str] | Mapping[str, float]" if words == "a list of texts" else "Sequence[Any]" if words.startswith("a list")
            else "Any" if not allowed else "bool | str" if words.startswith("off") else "str")
    return kind + (" | Literal['auto'] | None" if allowed != words else "")


def stub() -> str:
    """What a type checker reads in place of this file."""
    lines = ["from typing import Any, Callable, Literal, Mapping, Sequence, TypedDict, TypeVar", "",
             "F = TypeVar('F', bound=Callable[..., Any])", "STEP: dict[str, str]", "def toml(value: Any) -> str: ...",
             "def of_sections(kind: str, *sections: str) -> dict[str, str]: ...",
             "def settings(keywords: Mapping[str, str], given: Mapping[str, Any], call: str) -> list[str]: ...",
             "def documented(keywords: Mapping[str, str]) -> Callable[[F], F]: ...", "class StepOptions(TypedDict, total=False):"]
    names = {**STEP, **{other: STEP[name] for other, name in _OTHER_NAMES.items()}}
    lines += [f"    {name}: {_type(key)}" for name, key in names.items() if name not in ("seq_len", "tokens_per_step")]
    adapter = ", ".join(f"{name}: {_type(key)} = ..." for name, key in _ADAPTER.items())
    return "\n".join([*lines, "class Adapter:", "    settings: list[str]", f"    def __init__(self, {adapter}) -> None: ...", ""])

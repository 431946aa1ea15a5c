# SPDX-License-Identifier: Apache-2.0
"""Arrays of others as those that the library reads."""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = Any  # of NumPy, or what hands over its memory by DLPack: a torch tensor on the CPU
_HOST = (1, 3)  # DLPack's kinds of devices whose memory is the host's


def _array(array: Array, name: str) -> npt.NDArray[Any]:
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        if np.ma.is_masked(array):
            raise TypeError(f"{name}: elements are masked, and all are read: write {name}.filled(...)")
        return np.asarray(array)
    if array.__dlpack_device__()[0] not in _HOST:
        raise TypeError(f"{name}: it lies on {getattr(array, 'device', 'a device')}, and memory of the host is read: write {name}.cpu()")
    try:
        return np.from_dlpack(array.detach() if hasattr(array, "detach") else array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise TypeError(f"{name}: NumPy cannot read elements of {getattr(array, 'dtype', 'that type')}: write {name}.float()") from error


def ids_of(array: Array | None, name: str) -> Any:
    """Integers as 32 bits, where they lie if they have those already. Any other is refused: none becomes another one."""
    if array is None:
        return None
    array = _array(array, name)
    if array.dtype.kind not in "iu" and array.size > 0:
        raise TypeError(f"{name}: its elements are {array.dtype}; allowed are integers")
    ids = np.ascontiguousarray(array, np.int32)
    changed = np.flatnonzero(ids != array)
    if changed.size > 0:
        raise ValueError(f"{name}: {array.reshape(-1)[changed[0]]} at {changed[0]}; allowed are integers of 32 bits")
    return ids


def floats_of(array: Array | None, name: str) -> Any:
    """The same as f32, rounded to nearest. Numbers that f32 does not reach are refused."""
    if array is None:
        return None
    array = _array(array, name)
    if array.dtype.kind in "cOSUMm":
        raise TypeError(f"{name}: its elements are {array.dtype}; allowed are real numbers")
    if array.dtype == np.float32:
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(array, np.float32)
    beyond = np.flatnonzero(np.isinf(floats) & np.isfinite(array))
    if beyond.size > 0:
        raise ValueError(f"{name}: {array.reshape(-1)[beyond[0]]} at {beyond[0]}; f32 holds numbers up to 3.4e38")
    return floats

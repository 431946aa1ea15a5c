# SPDX-License-Identifier: Apache-2.0
"""Messages as protocol buffers write them: those that verbs.py reads and writes, and no others.

A message is a table of its fields by number. A field that the table does not have is refused.
"""
from __future__ import annotations

import struct
from typing import Any, Mapping, NamedTuple


class Field(NamedTuple):
    """kind   "bytes", "text", "whole", "flag" or "number"; or the Message that it is"""

    name: str
    kind: str | Message
    repeated: bool = False


class Message(NamedTuple):
    name: str
    fields: Mapping[int, Field]


def table(name: str, value: str | Message) -> Message:
    """An entry of a map from text."""
    return Message(name, {1: Field("key", "text"), 2: Field("value", value)})


_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_WIRE = {"bytes": _BYTES, "text": _BYTES, "whole": _VARINT, "flag": _VARINT, "number": _EIGHT}


def _varint(data: memoryview, at: int, of: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError(f"{of}: it ends within a number")
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value & (2**64 - 1), at
    raise ValueError(f"{of}: a number of more than ten bytes")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def read(data: bytes | memoryview, message: Message) -> dict[str, Any]:
    """The fields that are there, by name; of repeated ones always a list."""
    data, at, of = memoryview(data), 0, message.name
    out: dict[str, Any] = {field.name: [] for field in message.fields.values() if field.repeated}
    while at < len(data):
        key, at = _varint(data, at, of)
        number, wire = key >> 3, key & 7
        field = message.fields.get(number)
        if field is None:
            raise ValueError(f"{of}: field {number} is not known")
        value: Any
        if wire == _VARINT:
            value, at = _varint(data, at, of)
        elif wire == _BYTES:
            size, at = _varint(data, at, of)
            if size > len(data) - at:
                raise ValueError(f"{of}.{field.name}: {size} bytes, and {len(data) - at} are there")
            value, at = data[at:at + size], at + size
        elif wire == _EIGHT and len(data) - at >= 8:
            value, at = data[at:at + 8], at + 8
        else:
            raise ValueError(f"{of}.{field.name}: it is not of a type that is known")
        packed = field.kind == "whole" and field.repeated and wire == _BYTES
        if wire != (_BYTES if isinstance(field.kind, Message) else _WIRE[field.kind]) and not packed:
            raise ValueError(f"{of}.{field.name}: it has another type")
        if packed:
            place = 0
            while place < len(value):
                one, place = _varint(value, place, of)
                out[field.name].append(_signed(one))
            continue
        if isinstance(field.kind, Message):
            value = read(value, field.kind)
        elif field.kind == "text":
            value = str(value, "utf-8")
        elif field.kind == "whole":
            value = _signed(value)
        elif field.kind == "flag":
            value = value != 0
        elif field.kind == "number":
            value = struct.unpack("<d", value)[0]
        else:
            value = bytes(value)
        if field.repeated:
            out[field.name].append(value)
        else:
            out[field.name] = value
    return out


def _number(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def write(values: Mapping[str, Any], message: Message) -> bytes:
    """What read() makes these values of."""
    out = bytearray()
    for number, field in message.fields.items():
        if field.name not in values:
            continue
        for value in values[field.name] if field.repeated else [values[field.name]]:
            if isinstance(field.kind, Message):
                value, wire = write(value, field.kind), _BYTES
            else:
                wire = _WIRE[field.kind]
            out += _number(number << 3 | wire)
            if wire == _VARINT:
                out += _number(int(value))
            elif wire == _EIGHT:
                out += struct.pack("<d", value)
            else:
                value = value.encode() if isinstance(value, str) else value
                out += _number(len(value)) + value
    return bytes(out)

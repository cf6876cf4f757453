"""The types of fields: parse one field of text or JSON into its value, and infer the type that many fields share."""

from __future__ import annotations

import json
import re
from typing import Any

_TYPE_NAMES = {"long": "an integer", "double": "a number", "boolean": "true or false"}
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE | re.ASCII)


class JsonNumber(str):
    """A number of a JSON text, as it was written."""


def parse_scalar(value: Any, type_: str, name: str) -> Any:
    """Parse one field of text or JSON in its type. Raise `ValueError` with the name of the column and the field.

    Blanks and tabs around a text do not count; a text that is empty then is None.

    >>> parse_scalar(" 7", "long", "w"), parse_scalar(JsonNumber("7.0"), "long", "w")
    (7, 7)
    >>> parse_scalar(" a b ", "string", "w"), parse_scalar(" ", "string", "w")
    ('a b', None)
    """
    if type(value) is str:
        value = value.strip(" \t") or None
    if value is None:
        return None
    try:
        if type_ == "string":
            return _require_string(value)
        if type_ == "boolean":
            return _TRUTH[str(value).lower()]
        if not isinstance(value, str):
            raise ValueError
        if not (_NUMBER if type_ == "double" else _INTEGER).fullmatch(value):
            if type_ == "double" or not isinstance(value, JsonNumber):
                raise ValueError
            return _parse_whole_number(value)
        if type_ == "double":
            return float(value)
        number = int(value)
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError
        return number
    except (ValueError, KeyError):
        raise ValueError(f"{name} is {str(value)[:80]!r}, not {_TYPE_NAMES.get(type_, 'text')}") from None


def _require_string(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    if not isinstance(value, str):
        raise ValueError
    value.encode()  # a lone half of a surrogate pair is a ValueError
    return str(value)


def _parse_whole_number(literal: str) -> int:
    """Return the integer that a JSON number with a fraction or an exponent is, such as 1.0 or 1e3."""
    number = float(literal)
    if not abs(number) < 1 << 53 or number != int(number):
        raise ValueError
    return int(number)


def is_value(text: str, type_: str) -> bool:
    """Tell whether a field of text has a type.

    >>> [is_value(text, "long") for text in ("1", "-1", "1_000", "1.0")], is_value("1e3", "double")
    ([True, True, False, False], True)
    """
    try:
        return parse_scalar(text, type_, "") is not None
    except ValueError:
        return False


def infer_type(cells: list[str]) -> str:
    """Return the narrowest type that all of the cells have; empty cells do not count.

    >>> [infer_type(cells) for cells in (["1", "", "2"], ["1", "2.5"], ["true"], ["1", "x"], [""])]
    ['long', 'double', 'boolean', 'string', 'string']
    """
    filled = [cell for cell in cells if cell]
    types = ("long", "double", "boolean") if filled else ()
    return next((type_ for type_ in types if all(is_value(cell, type_) for cell in filled)), "string")

"""The file `altneu.toml`: it is read with every problem reported at once, made from a template, and extended.

A change keeps the comments, the order and the format of the file, which is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..errors import UsageError
from ..secret_masking import is_secret, mask_secret_assignments, mask_secrets
from .setting_types import EDGE_NOW, condition_fault, is_memory, suggest_name, toml_key
from .settings import SETTINGS, Config, Section, Setting
from .whole_files import open_whole_file

if TYPE_CHECKING:
    from tomlkit.items import Item, Key

NAME = "altneu.toml"
Entries = Mapping[str, str | int | float]  # key → value to write into a section
_MEMORY = ("spark.driver.memory", "spark.executor.memory")
_EXPECTED = {"int_type": "a whole number", "float_type": "a number", "string_type": "text", "dict_type": "a table"}
_BY_PLACE = {(setting.section, setting.key): setting for setting in SETTINGS}
_SECTIONS = tuple(Config.model_fields)


# -- Reading -----------------------------------------------------------------------------------------------------


def parse_settings(text: str | bytes, source: str) -> Config:
    """Parse the text of `altneu.toml`. Raises `UsageError` with every problem that it has; `source` is its name
    there."""
    raw = _parse_toml(text, source)
    config, problems = Config(), []
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        problems = [_describe_problem(each) for each in error.errors(include_url=False)]
    problems += _find_conflicts(raw)
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise UsageError(f"{source} has {len(problems)} problem(s):{listed}", f"edit {source}")
    return config


def _parse_toml(text: str | bytes, source: str) -> dict[str, Any]:
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text (byte {error.start}).", f"edit {source}") from None
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        line = text.splitlines()[int(match[1]) - 1] if match and isinstance(text, str) else ""
        key, sign, _ = line.partition("=")
        odd = sign and toml_key(key.strip()) != key.strip() and not re.search("[\"'#\\[.]", key)
        hint = f" Write the name in quotes: {toml_key(key.strip())} = …" if odd else ""
        raise UsageError(f"{source} is not TOML: {error}.{hint}", f"edit {source}") from None


def _describe_problem(error: ErrorDetails) -> str:
    """Describe a problem that a model reports, in the words of altneu."""
    section, *inner = map(str, error["loc"])
    kind, value = error["type"], error["input"]
    if not inner:
        if kind != "extra_forbidden":
            return f"{section} = {_abbreviate_value(value)}: expected the section [{section}]"
        if isinstance(value, dict):
            return f"[{section}] is not a section of {NAME}{suggest_name(section, _SECTIONS)}"
        shown = "***" if is_secret(section) else _abbreviate_value(value)
        return f"{section} = {shown} is not in a section{_suggest_section(section)}"
    key = inner[0]
    if kind == "extra_forbidden" and len(inner) == 1:
        keys = [setting.name for setting in SETTINGS if setting.section == section]
        similar = suggest_name(key, keys) or _suggest_section(key)
        return f"[{section}] {key} is not a setting{similar}; the settings are: {', '.join(sorted(keys))}"
    why = str(error["ctx"]["error"]) if kind == "value_error" else ""
    if inner[-1] == "[key]":
        return f"[{section}] {toml_key(key)}: {why}"
    setting = _BY_PLACE.get((section, key)) or _BY_PLACE[section, None]
    expected = [f"expected {_EXPECTED[kind]}"] if kind in _EXPECTED else []
    shown = "***" if section == "spark" and is_secret(inner[-1]) else _abbreviate_value(value)
    if key in ("database", "warehouse", "uri", "catalog", "pages"):
        shown = re.sub(r"(://[^?]*\?)[^']*", r"\1***", shown)
    place = ", ".join([toml_key(key), *inner[1:]])
    if kind == "extra_forbidden":  # its value may be a secret
        return f"[{section}] {place} is not a setting; expected {setting.about.allowed}"
    return f"[{section}] {place} = {shown}: {why or ', '.join([*expected, setting.about.allowed])}"


def _abbreviate_value(value: object) -> str:
    return repr(mask_secrets(value)) if isinstance(value, str) else mask_secrets(repr(value))


def _suggest_section(key: str) -> str:
    places = [f"[{setting.section}] {key}" for setting in SETTINGS if setting.key == key]
    return f". Did you mean {' or '.join(places)}?" if places else ""


def _find_conflicts(raw: dict[str, Any]) -> list[str]:
    """List the conflicts between settings: similar names, and conditions that do not fit the value columns."""
    values, motifs, conf = (
        _section_of(raw, "values"),
        _section_of(raw, "motifs"),
        _section_of(_section_of(raw, "spark"), "conf"),
    )
    problems = [
        f"[{section}] {toml_key(name)}: differs from {other} only in upper and lower case"
        for section, names in (("values", values), ("motifs", motifs))
        for name, other in _find_case_duplicates(names)
    ]
    tables = _section_of(raw, "publish").get("tables")
    if isinstance(tables, list) and "edge_now" in tables:
        problems += [
            f'[publish] tables = "edge_now": the table has a column {name} of its own; rename the one in [values]'
            for name in values
            if name.casefold() in EDGE_NOW
        ]
    if isinstance(tables, list) and "changes" in tables and "catalog" in _section_of(raw, "storage"):
        problems.append('[publish] tables = "changes": a REST catalog cannot list it: remove one of the settings')
    where = _section_of(raw, "edges").get("where")
    if isinstance(where, str) and (why := condition_fault(where, values)):
        problems.append(f"[edges] where = {where!r}: {why}")
    for name, text in motifs.items():
        from altneu.algorithms.graph import motif_patterns

        with contextlib.suppress(ValueError):  # it is not a motif: the model reports that
            for condition in motif_patterns.list_conditions(motif_patterns.parse_motif(text)):
                if why := condition_fault(condition, values):
                    problems.append(f"[motifs] {name} = {text!r}: where {condition}: {why}")
    problems += [
        f"[spark] conf, {name}: it is a secret, which is not allowed in this file: put it into the environment, or "
        "into spark-defaults.conf in the folder that SPARK_CONF_DIR names"
        for name, value in conf.items()
        if is_secret(name) or mask_secret_assignments(str(value)) != str(value)
    ]
    return problems + [
        f'[spark] conf, {name} = {conf[name]!r}: expected a whole number and k, m, g or t, at least 512m: "8g", "4096m"'
        for name in _MEMORY
        if name in conf and not isinstance(conf[name], dict) and not is_memory(str(conf[name]))
    ]


def _section_of(raw: dict[str, Any], name: str) -> dict[str, Any]:
    section = raw.get(name)
    return section if isinstance(section, dict) else {}


def _find_case_duplicates(names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each name that differs from an earlier one only in upper and lower case, with the earlier one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            yield name, other


# -- Writing -----------------------------------------------------------------------------------------------------


def settings_template() -> str:
    """Return the text of a new `altneu.toml`: every setting, commented out, with an example and its meaning."""
    lines = [f"# {NAME}: every setting has a default; uncomment what you change."]
    for section, field in Config.model_fields.items():
        default = field.get_default()
        whole = _BY_PLACE.get((section, None))
        heading = whole.about.meaning if whole else default.heading if isinstance(default, Section) else ""
        lines += ["", *_comment_lines(f"[{section}]", heading)]
        for setting in SETTINGS:
            if setting.section == section:
                lines += _example_lines(setting)
    return "\n".join(lines) + "\n"


def _example_lines(setting: Setting) -> list[str]:
    if setting.key is None:
        return [f"# {line}" for line in setting.about.example.splitlines()]
    return _comment_lines(f"# {setting.key} = {setting.about.example}", setting.about.meaning)


def _comment_lines(start: str, meaning: str) -> list[str]:
    meaning = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", meaning)  # the links of the reference lead nowhere from here
    below = len(start) > 52
    first, *more = textwrap.wrap(meaning, 94 if below else 116 - max(22, len(start))) or [""]
    if below:
        first, more = "", [first, *more]
    return [f"{start:<22}  # {first}" if first else start, *(f"{'':24}# {line}" for line in more)]


def extend_settings(text: str, sections: Mapping[str, Entries]) -> str:
    """Add settings to the text, each at the end of its section, before the blank line that ends the section."""
    import tomlkit

    body = text.removeprefix("\ufeff")
    ends = "\r\n" if 0 < body.count("\n") == body.count("\r\n") else "\n"
    document = tomlkit.parse(body.replace(ends, "\n"))
    for section, entries in sections.items():
        if section not in document:
            document.add(section, tomlkit.table())
        for key, value in entries.items():
            _put_setting(cast("MutableMapping[str, object]", document[section]), key, value)
    return text[: len(text) - len(body)] + tomlkit.dumps(document).replace("\n", ends)


def replace_settings(text: str, settings: Mapping[tuple[str, str], str | Mapping[str, str] | None]) -> str:
    """Replace the values of settings in the text: (section, key) → value; None: remove it, so that the default applies.

    No password stays in the text, not even in a comment.
    """
    import tomlkit

    document = tomlkit.parse(re.sub(r"""(\w+://[^\s:@/"']*):[^\s@/"']*@""", r"\1@", text.removeprefix("\ufeff")))
    entries: dict[str, dict[str, Any]] = {}
    for (section, key), value in settings.items():
        if section in document:
            cast("MutableMapping[str, object]", document[section]).pop(key, None)
        if isinstance(value, Mapping):
            inline = tomlkit.inline_table()
            inline.update(value)
            entries.setdefault(section, {})[key] = inline
        elif value is not None:
            entries.setdefault(section, {})[key] = value
    return extend_settings(tomlkit.dumps(document), entries)


def _put_setting(table: MutableMapping[str, object], key: str, value: str | int | float) -> None:
    from tomlkit.items import Table, Whitespace

    rows: list[tuple[Key | None, Item]] = []
    rest: list[tuple[Key | None, Item]] = []
    if isinstance(table, Table) and key not in table:  # neither an inline table nor one with dotted keys
        rows = table.value.body
        last = max((at for at, (name, _) in enumerate(rows) if name is not None), default=-1)
        blank = (at for at, (_, item) in enumerate(rows) if at > last and isinstance(item, Whitespace))
        rest = rows[next(blank, len(rows)) :]
        del rows[len(rows) - len(rest) :]
    table[key] = value
    rows.extend(rest)


def read_text(file: Path) -> str:
    """Read a text file with its line ends and its byte order mark unchanged."""
    return file.read_bytes().decode("utf-8")


def write_text(file: Path, text: str) -> None:
    """Write a text file as a whole or not at all. A link to it stays a link, and its permissions stay the same."""
    with open_whole_file(file) as stream:
        stream.write(text.encode("utf-8"))

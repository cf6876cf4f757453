"""Links, commands and settings in the documents lead somewhere: nothing is run, no Spark is started."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from enum import Enum
from itertools import product
from typing import Any, get_args

import pytest
import typer

from altneu.pipeline.cli.command_line import app
from altneu.pipeline.errors import Exit
from altneu.pipeline.home.settings import SETTINGS, Config
from altneu.pipeline.home.settings_file import parse_settings
from altneu.pipeline.state.epoch_status import AuditStatus
from tests.docs.pages import PAGES, REPO, anchors, blocks, links, quoted, read, table

CLI: Any = typer.main.get_command(app)
SECTIONS = set(Config.model_fields)
HELP = {"--help", "-h"}
SHELL = ("", "sh", "sh pg", "bash", "console")


# -- Links -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    wrong = []
    for line, target in links(read(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (REPO / page).parent / name if name else REPO / page
        if not file.exists():
            wrong.append(f"{page}:{line}: there is no {target}")
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            wrong.append(f"{page}:{line}: {name or page} has no heading #{anchor}")
    assert not wrong, "\n".join(wrong)


def test_anchors_are_those_of_github() -> None:
    assert anchors("# A b-c\n\n```\n# no heading\n```\n## `x`: [y](z.md), 3.\n## A b-c\n") == {
        "a-b-c",
        "x-y-3",
        "a-b-c-1",
    }


# -- Commands ----------------------------------------------------------------------------------------------------


def commands(page: str) -> Iterator[tuple[int, str, bool]]:
    """(line, command, whole) of every `altneu …`: in a block it stands whole, in backticks it may be a mere name."""
    text = read(page)
    for block in blocks(text):
        if block.language in SHELL:
            for number, line in enumerate(block.text.splitlines(), block.line + 1):
                found = re.match(r"(?:\$ )?((?:\S*/)?altneu .*)", line)
                if found:
                    yield number, found[1], True
    for number, words in quoted(text):
        if re.match(r"altneu [a-z-]", words):
            yield number, words, False


def problem(typed: str, whole: bool) -> str | None:
    """Why the command line would refuse what is typed; None: it would take it."""
    # three blanks part two commands, or a command from what is said about it
    words = [word for word in shlex.split(re.split(r" {3,}", typed)[0], comments=True)[1:] if word != "…"]
    whole = whole and not HELP & set(words)
    words = ["show" if word == "COMMAND" else word for word in words if word != "[OPTIONS]"]
    try:
        _parse(CLI, "altneu", words)
    except Exception as error:
        if type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError") and not whole:
            return None
        return f"{type(error).__name__}: {getattr(error, 'message', None) or error}"
    return None


def _parse(command: Any, name: str, words: list[str]) -> None:
    """Parse by the command itself, and by its sub-command. Options that act at once (--help, --version, the shell
    completion, which writes into the start-up files of the shell) are looked up here and never given to it."""
    acting = {flag for each in command.params if each.callback is not None for flag in each.opts} | HELP
    given = [_value(word) for word in words if word not in acting]
    if words and not given:
        return
    context = command.make_context(name, given)
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    inner = getattr(command, "commands", {})
    if inner and rest:
        if rest[0] not in inner:
            raise LookupError(f"{name} has no command {rest[0]!r}")
        sub = inner[rest[0]]
        words = [_typed(sub, at, word) for at, word in enumerate(rest[1:])]
        _parse(sub, rest[0], words)


def _value(word: str) -> str:
    """What a person types in the place of a placeholder: a number fits wherever a name does."""
    return "7" if re.fullmatch(r"\[?(R[12]?|N|K|REVISION)\]?", word) else word


def _typed(command: Any, at: int, word: str) -> str:
    """A placeholder of an argument with choices (VIEW, THING) becomes the first of them."""
    first = next((each for each in command.params if each.param_type_name == "argument"), None)
    if at == 0 and first is not None and word == (first.metavar or first.name.upper()):
        annotation = first.type_descriptor.annotation
        kind = (get_args(annotation) or (annotation,))[0]
        if isinstance(kind, type) and issubclass(kind, Enum):
            return str(next(iter(kind)).value)
    return word


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one(page: str) -> None:
    found = [(line, typed, problem(typed, whole)) for line, typed, whole in commands(page)]
    wrong = [f"{page}:{line}: {typed}: {why}" for line, typed, why in found if why]
    assert not wrong, "\n".join(wrong)


def test_what_acts_at_once_is_looked_up_and_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    acting = [each for each in CLI.params if each.callback is not None]
    assert {"--version", "--install-completion"} <= {flag for each in acting for flag in each.opts}

    def refuse(context: Any, option: Any, wanted: Any) -> None:
        assert not wanted, f"{option.opts[0]} was done"

    for each in acting:
        monkeypatch.setattr(each, "callback", refuse)
    for typed in ("altneu --install-completion", "altneu --version", "altneu --help", "altneu show --help"):
        assert problem(typed, True) is None
    assert "NoSuchOption" in (problem("altneu --install-everything", True) or "")


def test_what_is_no_command_is_found() -> None:
    assert problem("altneu show totals --all-epochs", True) is None
    assert problem("altneu rollback R --dry-run   # back", True) is None
    assert "NoSuchOption" in (problem("altneu show totals --every", True) or "")
    assert "has no command" in (problem("altneu unpublish", False) or "")
    assert problem("altneu explain", False) is None
    assert "MissingParameter" in (problem("altneu explain", True) or "")
    assert problem("altneu rollback seven", True) is not None
    assert problem("altneu show colours", True) is not None


# -- Settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_settings_is_read(page: str) -> None:
    for block in blocks(read(page)):
        if block.language == "toml":
            parse_settings(block.text, f"{page}:{block.line}")


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_is_named_is_one(page: str) -> None:
    known = {(setting.section, setting.key) for setting in SETTINGS}
    for line, words in quoted(read(page)):
        found = re.fullmatch(r"\[([a-z]+)\](?: (\w+)(?: = .*)?)?", words)
        if found:
            section, key = found[1], found[2]
            own = key is None or section in ("values", "motifs")
            assert section in SECTIONS, f"{page}:{line}: {words}: no such section"
            assert own or (section, key) in known, f"{page}:{line}: {words}: no such setting"


# -- Python ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_is_python(page: str) -> None:
    for block in blocks(read(page)):
        if block.language == "python":
            compile(block.text, f"{page}:{block.line}", "exec")


# -- What the pages of operating/ promise ------------------------------------------------------------------------

STATES = {  # of `runner.survey` and `runner.grid`
    *("missing", "changed", "published", "running", "failed", "interrupted"),
    *("incomplete", "gone", "folded"),
}


def test_every_state_and_every_exit_code_has_its_row_for_those_on_call() -> None:
    page = read("docs/operating/troubleshooting.md")
    assert {row[0] for row in table(page, "States of an epoch")} >= STATES
    codes = {row[0] for row in table(page, "Exit codes")}
    assert {str(int(code)) for code in Exit} <= codes
    audits = {row[0].replace("revision R", "revision 3") for row in table(page, "What the last audit says")}
    for passed, fresh in product((True, False), repeat=2):
        assert AuditStatus(passed, 3, "", fresh, recomputed=False).describe() in audits


def test_every_figure_for_sizing_is_measured() -> None:
    """Each number of the table is one of the benchmarks' results."""
    results = "".join(read(f"tests/benchmarks/{name}") for name in ("RESULTS.md", "RESULTS-kernels.md"))
    figures = set(re.findall(r"\d[\d,]*(?:\.\d+)?", results))
    for what, measured in table(read("docs/operating/sizing.md"), "Sizing"):
        for figure in re.findall(r"\d[\d,]*(?:\.\d+)?", measured):
            assert figure.rstrip(",") in figures, f"{what}: {figure} is in none of the results"

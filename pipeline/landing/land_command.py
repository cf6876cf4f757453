"""The command `land`: it reads and validates everything in a private folder, then changes settings and batches at
once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import AltneuError, UsageError
from ..formatting import make_stem
from ..home.home import Config, Home
from ..home.settings_file import Entries
from . import epoch_splitter, object_store_landing
from .atomic_placement import Draft, discard_unused, landing_lock, recover_landing, report_undone
from .format_inference import RawFormat, infer_format, infer_relation_format
from .local_landing import COMPLETE, EMPTY, count_batch_rows, list_batches, seal_folder
from .options import HELP, LandOptions
from .sources import prepare_sources, require_files

Say = Callable[[str], None]
Confirm = Callable[[RawFormat], bool]


@dataclass
class LandReport:
    """The result of `land`, or with `dry_run` what it would do."""

    home: Home
    epochs: list[int] = field(default_factory=list)
    rows: int = 0
    replaced_epochs: int = 0
    replaced_rows: int = 0
    declared: dict[str, Entries] = field(default_factory=dict)
    form: RawFormat | None = None
    comments: int = 0  # the number of comment lines before the rows of the files
    rejected: epoch_splitter.Rejected = field(default_factory=list)
    rejected_file: Path | None = None


def land(
    home: Home,
    files: list[Path],
    options: LandOptions,
    say: Say = lambda text: None,
    confirm: Confirm = lambda form: True,
) -> LandReport:
    """Split raw event files into epoch folders, or take them as one epoch; see `altneu land --help`.

    The time column decides the epoch and becomes `seq`, in microseconds, so that within an epoch the later event wins.
    Other columns are values. Malformed rows are kept in `landing/_rejected/` and reported. Nothing changes after an
    error.

    Args:
        home: The home; if it does not exist yet (`Home.draft_home`), it is made once everything is validated.
        files: The raw event files; `-` is standard input.
        options: The options of the command.
        say: A function that gets lines about the progress.
        confirm: A function that gets the detected format, and returns whether to go on.

    Raises:
        UsageError: An option or a file does not fit.
        AltneuError: No row, or too few rows, could be read, or the batches could not be placed.
    """
    options.require_text()
    epoch = _resolve_epoch_option(home, options)
    if options.relation is not None:
        _require_relation(home, options)
    if not options.empty:
        require_files(files)
    draft = Draft(home.landing, say, home.path / "altneu.toml")
    try:
        form = None
        if not options.empty:
            infer = infer_format if options.relation is None else infer_relation_format
            form = infer(home, prepare_sources(files, draft.folder / "inputs"), options)
            if not confirm(form):
                raise UsageError("nothing was landed.", HELP)
        if home.landed_remotely:
            with landing_lock(home.landing, say):
                report_undone(object_store_landing.recover_landing(home), say)
        if form is None:
            assert epoch is not None
            result = epoch_splitter.SplitResult()
            (draft.new / home.schedule.format_label(epoch)).mkdir()
            result.rows[epoch] = 0
        else:
            form, result = _split_files(form, epoch, draft, say)
            _require_rows(form, result)
            if options.relation is not None:
                _move_into_subfolders(draft.new, options.relation)
        report = LandReport(form.home if form else home, sorted(result.rows), sum(result.rows.values()), form=form)
        report.comments = result.comments
        report.rejected, report.declared = result.rejected, form.declared if form else {}
        _seal_and_place_batches(report, draft, result, options, files, say)
    finally:
        draft.close()
        if not (home.path / "altneu.toml").exists():
            discard_unused(home.landing)
    return report


def _require_relation(home: Home, options: LandOptions) -> None:
    """Raise `UsageError` for a relation that is not declared, or options that do not go with one."""
    known = home.config.relations
    if options.relation not in known:
        known_text = f"there are {', '.join(known)}" if known else "there is none"
        raise UsageError(
            f"--relation {options.relation}: altneu.toml does not declare it; {known_text}.",
            f'[relations] {options.relation} = {{ key = {{ id = "vertex" }}, values = {{ … }} }} in altneu.toml',
        )
    if options.epoch is None or options.time_column or options.every or options.ids:
        raise UsageError("--relation goes with --epoch E, without --time, --every and --ids.", HELP)
    if home.landed_remotely:
        raise UsageError(
            f"relations cannot land in an object store yet, and {home.landed_at} is in one.",
            "a [landing] on a disk of this machine",
        )


def _move_into_subfolders(new: Path, relation: str) -> None:
    """Move the files of each epoch into the subfolder of a relation."""
    for folder in list(new.iterdir()):
        files = list(folder.iterdir())
        (folder / relation).mkdir()
        for file in files:
            file.rename(folder / relation / file.name)


def _resolve_epoch_option(home: Home, options: LandOptions) -> int | None:
    if options.empty and options.epoch is None:
        raise UsageError("--empty needs --epoch E, and takes no file.", HELP)
    if options.epoch is None:
        return None
    epoch = options.epoch if isinstance(options.epoch, int) else home.schedule.parse_epoch(options.epoch)
    if not home.schedule.has_date(epoch):
        date = home.schedule.date_in(str(options.epoch))
        raise UsageError(
            f"--epoch {options.epoch} is beyond the calendar (years 1 to 9999), or beyond 2^62.",
            f"--epoch {date}" if date else HELP,
        )
    return epoch


def _require_near_epochs(report: LandReport, landed: Iterable[int], options: LandOptions) -> None:
    """Raise `UsageError` for an epoch that is 100 years or more from all that are landed and from today."""
    schedule, known = report.home.schedule, list(landed)
    far = next((epoch for epoch in report.epochs if schedule.is_far(epoch, known)), None)
    if far is None:
        return
    date = schedule.date_in(str(options.epoch))
    raise UsageError(
        f"epoch {far} is {schedule.format_label(far)}: 100 years or more from today and from all that is landed. "
        "Nothing was landed.",
        f"--epoch {date}   (if it is right after all: --yes)"
        if date
        else "--yes   (if that is right; otherwise correct it)",
    )


def _split_files(
    form: RawFormat, epoch: int | None, draft: Draft, say: Say
) -> tuple[RawFormat, epoch_splitter.SplitResult]:
    """Split the files; split them again if all of their rows suggest another unit or type than the first rows."""
    for _ in range(3):
        result = epoch_splitter.split_by_epoch(form, epoch, draft.new, say)
        clock, wider = form.clock, epoch_splitter.widen_types(form, result.rejected)
        other = clock.likely_unit() if clock and not clock.text and not clock.is_given else None
        if not wider and (clock is None or other in (None, clock.unit)):
            break
        if clock is not None:
            clock = clock.with_unit(other or clock.unit)
        form = form.with_types(wider, clock)
        shutil.rmtree(draft.new)
        draft.new.mkdir()
    if form.clock is not None:
        form.clock.require_no_dates()
    return form, result


def _require_rows(form: RawFormat, result: epoch_splitter.SplitResult) -> None:
    good, serious = sum(result.rows.values()), result.serious_rejections()
    names = sum(reason.startswith(("src is '", "dst is '")) and "integer" in reason for _, _, reason, _ in serious)
    advice = "check --columns, --sep and --header"
    if names * 2 > len(serious):
        advice = 'for names instead of integers: [vertices] ids = "string" in altneu.toml (a new home: --ids string)'
    elif form.clock is not None:
        about_times = (form.clock.next_command_for(reason, text) for _, _, reason, text in serious)
        advice = next(filter(None, about_times), advice)
    if not good:
        first = f"; the first: line {serious[0][1]}: {serious[0][2]}" if serious else ""
        raise AltneuError(
            f"{', '.join(source.name for source in form.layouts)}: no row could be read "
            f"({len(result.rejected)} rejected{first}). "
            "Nothing was landed.",
            advice if serious else HELP,
        )
    share = form.home.config.ingest.max_bad_share
    if len(serious) > share * (good + len(serious)):
        name, line, reason, text = serious[0]
        raise AltneuError(
            f"{name}: {len(serious)} of {good + len(serious)} rows cannot be read, more than [ingest] max_bad_share = "
            f"{share:g} allows; the first: line {line}: {reason}: {text[:80]!r}. Nothing was landed.",
            advice,
        )


def _seal_and_place_batches(
    report: LandReport,
    draft: Draft,
    result: epoch_splitter.SplitResult,
    options: LandOptions,
    files: list[Path],
    say: Say,
) -> None:
    """Seal the new batches and move them into the landing, with the settings that they need."""
    home = report.home
    label = home.schedule.format_label
    moves = []
    if result.rejected and not options.dry_run:
        epoch_splitter.write_rejected(draft.folder / "rejected.jsonl", result.rejected)
        name = f"{make_stem(files[0].name)}-{time.strftime('%Y%m%dT%H%M%S')}-{draft.folder.name[:4]}.jsonl"
        report.rejected_file = home.landing / "_rejected" / name
        moves.append((f"{draft.folder.relative_to(home.landing)}/rejected.jsonl", f"_rejected/{name}"))
    with landing_lock(home.landing, say):
        report_undone(recover_landing(home.landing), say)
        settings = _merge_settings(report)
        batches = list_batches(report.home)
        if not options.far:
            _require_near_epochs(report, batches, options)
        old = [batches[epoch] for epoch in report.epochs if epoch in batches]
        for landed in old:
            if landed.incomplete and landed.all_files and (options.append or landed.relation_files):
                raise UsageError(
                    f"nothing can be added to epoch {landed.label}: {landed.incomplete}",
                    "wait, then type the same command again",
                )
            if landed.label != label(landed.epoch):
                raise UsageError(
                    f"epoch {label(landed.epoch)} is landed as epoch={landed.label}.",
                    f"rename {home.landed_at}/epoch={landed.label} to epoch={label(landed.epoch)}",
                )
        counts = {landed.epoch: count_batch_rows(landed) for landed in old}
        if options.relation is None:
            report.replaced_epochs, report.replaced_rows = len(old), sum(counts.values())
        if options.dry_run:
            return
        total = _count_edge_rows(result, counts, options)
        if moves:
            (home.landing / "_rejected").mkdir(exist_ok=True)
        if home.landed_remotely:
            labels = {label(epoch): rows for epoch, rows in total.items()}
            object_store_landing.place_batches(home, draft.new, labels, settings, append=options.append)
            draft.place_batches([], None, moves)
            return
        for epoch in report.epochs:
            _carry_former_files(home.landing / f"epoch={label(epoch)}", draft.new / label(epoch), options)
            seal_folder(draft.new / label(epoch), total[epoch])
        home.landing.mkdir(parents=True, exist_ok=True)
        draft.place_batches([label(epoch) for epoch in report.epochs], settings, moves)


def _merge_settings(report: LandReport) -> str | None:
    """Return the new text of `altneu.toml`, made from the current file: another land may have declared the same
    settings."""
    fresh = Home.draft_home(report.home.path)
    now, default = fresh.config.model_dump(), Config().model_dump()
    missing: dict[str, Entries] = {}
    for section, entries in report.declared.items():
        if left := {key: value for key, value in entries.items() if now[section].get(key) != value}:
            missing[section] = left
    if not missing and (report.home.path / "altneu.toml").exists():
        report.home = fresh
        return None
    if any(now[section].get(key) != default[section].get(key) for section in missing for key in missing[section]):
        raise AltneuError(
            "another land has declared other settings meanwhile. Nothing was landed.", "type the same command again"
        )
    report.home, text = fresh.with_settings(**missing)
    return text


def _count_edge_rows(
    result: epoch_splitter.SplitResult, landed: Mapping[int, int], options: LandOptions
) -> dict[int, int]:
    """Return how many rows of edges the new batches have, by epoch; `landed` are those of the former batches."""
    kept = landed if options.append or options.relation else {}
    return {epoch: kept.get(epoch, 0) + (0 if options.relation else rows) for epoch, rows in result.rows.items()}


def _carry_former_files(old: Path, new: Path, options: LandOptions) -> None:
    """Put the files of a batch that a land does not replace next to the new files."""
    if options.relation and old.is_dir():
        _link_files(_list_landed_files(old), new)
    elif options.append:
        _add_former_files(old, new)
    for folder in [each for each in old.iterdir() if each.is_dir()] if old.is_dir() else []:
        if folder.name != options.relation:
            (new / folder.name).mkdir(exist_ok=True)
            _link_files(_list_landed_files(folder), new / folder.name)
        elif options.append:
            (new / folder.name).mkdir(exist_ok=True)
            _add_former_files(folder, new / folder.name)


def _list_landed_files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.is_file() and file.name not in (COMPLETE, EMPTY)]


def _add_former_files(old: Path, new: Path) -> None:
    """Put the files of a batch next to the new files, which take free names."""
    if not old.is_dir():
        return
    kept = _list_landed_files(old)
    taken = {file.name for file in kept}
    for file in sorted(_list_landed_files(new)):
        name, rest = file.name, file.name.split("-", 1)[1]
        number = 0
        while name in taken:
            number += 1
            name = f"{number:03d}-{rest}"
        taken.add(name)
        if name != file.name:
            file.rename(new / f"_{name}")
    for file in sorted(new.glob("_*")):
        file.rename(new / file.name[1:])
    _link_files(kept, new)


def _link_files(files: Iterable[Path], new: Path) -> None:
    for file in files:
        try:
            (new / file.name).hardlink_to(file)
        except OSError:  # the file system has no links
            shutil.copy2(file, new / file.name)

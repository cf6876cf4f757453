"""Find where the records of delimited text end. A line break within quotes belongs to its field (RFC 4180).

A quote opens a field only as its first character, is written twice within it, and closes it before a separator or the
end of the line; blanks may stand between. A record that breaks this rule is faulty, and ends where its line does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
WINDOW = 1 << 20  # the number of bytes whose quotes are examined together
QUOTE, NEWLINE, RETURN = b'"\n\r'
NO_OFFSETS: Offsets = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Records:
    """Whole records of a file as bytes, the last line break included. `line` is the number of their first line.

    `breaks` are the offsets at which a line ends within a record; `faulty` are the offsets at which records with
    wrong quotes begin.
    """

    text: bytes
    line: int
    breaks: Offsets = field(default_factory=lambda: NO_OFFSETS)
    faulty: Offsets = field(default_factory=lambda: NO_OFFSETS)

    @cached_property
    def line_count(self) -> int:
        return self.text.count(b"\n")

    def count_records(self) -> int:
        return self.line_count - len(self.breaks)

    def number_records(self) -> Offsets:
        """Return the number of the first line of each record."""
        if not len(self.breaks):
            return np.arange(self.line, self.line + self.count_records())
        ends = np.flatnonzero(np.frombuffer(self.text, np.uint8) == NEWLINE)
        is_end = ~np.isin(ends, self.breaks, assume_unique=True)
        return self.line + np.flatnonzero(np.concatenate([[True], is_end[:-1]]))

    def halve(self) -> tuple[Records, Records] | None:
        """Cut the records near the middle of their text. Return None if there is no place to cut."""
        middle = self.text.find(b"\n", len(self.text) // 2)
        for inner in self.breaks[np.searchsorted(self.breaks, middle) :]:
            if inner != middle:
                break
            middle = self.text.find(b"\n", middle + 1)
        cut = middle + 1
        if cut == len(self.text):
            return None
        later = self.breaks[self.breaks >= cut] - cut, self.faulty[self.faulty >= cut] - cut
        first = Records(self.text[:cut], self.line, self.breaks[self.breaks < cut], self.faulty[self.faulty < cut])
        return first, Records(self.text[cut:], self.line + self.text.count(b"\n", 0, cut), *later)

    def list_records(self) -> Iterator[tuple[int, bytes]]:
        """Yield each record without its line break, with the number of its first line."""
        inner = set(self.breaks.tolist())
        start, end, line = 0, self.text.find(b"\n"), self.line
        lines = 1
        while end >= 0:
            if end in inner:
                lines += 1
            else:
                yield line, self.text[start:end].removesuffix(b"\r")
                start, line, lines = end + 1, line + lines, 1
            end = self.text.find(b"\n", end + 1)


def cut_lines(text: bytes, line: int) -> Records:
    """Take the whole lines at the beginning of a text, where every line is a record."""
    return Records(text[: text.rfind(b"\n") + 1], line)


def cut_records(text: bytes, line: int, separator: str) -> Records:
    """Take the whole records at the beginning of a text, which begins with a record."""
    if separator == " " or b'"' not in text:
        return cut_lines(text, line)
    pattern = compile_record(separator.encode())
    breaks: list[Offsets] = []
    faulty: list[int] = []
    start, last = 0, text.rfind(b"\n") + 1
    while start < last:
        after = _cut_orderly(text, start, separator.encode(), breaks)
        after = after or _cut_any(text, start, pattern, breaks, faulty)
        if after == start:
            break
        start = after
    return Records(text[:start], line, np.concatenate([NO_OFFSETS, *breaks]), np.array(faulty, np.int64))


def _cut_orderly(text: bytes, start: int, separator: bytes, breaks: list[Offsets]) -> int:
    """Return the end of the last record in a window in which every quote stands beside a separator, a line break or
    another quote.

    The quotes then open and close in turn. Return 0 if that is not so.
    """
    if len(separator) > 1:
        return 0
    codes = np.frombuffer(text, np.uint8, min(WINDOW, len(text) - start), start)
    marks = np.flatnonzero((codes == QUOTE) | (codes == NEWLINE))
    is_newline = codes[marks] == NEWLINE
    order = np.flatnonzero(is_newline)
    quotes_before = order - np.arange(len(order))
    is_inside = quotes_before % 2 == 1
    outer = np.flatnonzero(~is_inside)
    if not len(outer):
        return 0
    last = int(outer[-1])
    end = int(marks[order[last]]) + 1
    quotes = marks[~is_newline][: quotes_before[last]]
    beside = np.zeros(256, bool)
    beside[[*separator, NEWLINE, QUOTE]] = True
    opening = quotes[::2] if len(quotes) and quotes[0] else quotes[2::2]  # there is no byte before the first one
    if not beside[codes[opening - 1]].all():
        return 0
    beside[RETURN] = True
    if not beside[codes[quotes[1::2] + 1]].all():
        return 0
    inner = order[:last][is_inside[:last]]
    if len(inner):
        breaks.append(marks[inner] + start)
    return start + end


def _cut_any(text: bytes, start: int, pattern: re.Pattern[bytes], breaks: list[Offsets], faulty: list[int]) -> int:
    """Return the end of the last record that begins in a window; examine one line with quotes after the other."""
    stop = start + WINDOW
    while start < stop:
        quote = text.find(b'"', start)
        if quote < 0:
            return text.rfind(b"\n") + 1
        begin = max(text.rfind(b"\n", start, quote) + 1, start)
        if begin >= stop:
            return begin
        record = pattern.match(text, begin)
        if record is None:
            return begin
        if record.lastindex:
            faulty.append(begin)
        start = record.end()
        inner = np.flatnonzero(np.frombuffer(text, np.uint8, start - 1 - begin, begin) == NEWLINE)
        if len(inner):
            breaks.append(inner + begin)
    return start


@lru_cache
def compile_record(separator: bytes) -> re.Pattern[bytes]:
    """Return the pattern of a record with its line break. It has a group for text that follows a closing quote."""
    mark = re.escape(separator)
    other = rb"[^\n" + mark + rb"]" if len(separator) == 1 else rb"(?:(?!" + mark + rb")[^\n])"
    quoted = rb'"[^"]*+(?:""[^"]*+)*+"(?:[ \t]*?(?=' + mark + rb"|\r?\n)|(" + other + rb"+))"
    field = rb"(?:" + quoted + rb'|(?!")' + other + rb"*+)"
    return re.compile(field + rb"(?:" + mark + field + rb")*+\r?\n")


def is_record(text: bytes, separator: str) -> bool:
    """Tell whether a text that ends with a line break is a whole record, rather than one whose quotes go on in the next
    line."""
    return separator == " " or b'"' not in text or compile_record(separator.encode()).match(text) is not None


def join_lines(lines: Iterable[str], separator: str) -> Iterator[str]:
    """Yield the records, joined from their lines. The lines have no line breaks; those within a field are restored.

    >>> list(join_lines(['1,"a', 'b"', "2,c"], ","))
    ['1,"a\\nb"', '2,c']
    """
    begun: list[str] = []
    for line in lines:
        begun.append(line)
        if (len(begun) == 1 or '"' in line) and is_record("\n".join([*begun, ""]).encode(), separator):
            yield "\n".join(begun)
            begun.clear()
    yield from begun  # the last quote is not closed


class QuoteError(ValueError):
    """The quotes of a record break the rule, so that its end is not known either."""


@lru_cache
def _compile_field(separator: str) -> re.Pattern[str]:
    mark = re.escape(separator)
    other = rf"[^{mark}]" if len(separator) == 1 else rf"(?:(?!{mark})[\s\S])"
    quoted = r'"(?P<quoted>[^"]*+(?:""[^"]*+)*+)"[ \t]*?'
    return re.compile(rf'(?:{quoted}|(?P<bare>(?!"){other}*+))(?P<end>{mark}|\Z)')


def split_record(record: str, separator: str) -> list[str]:
    """Return the fields of a record, without the blanks around them. Raise `ValueError` if it is malformed.

    >>> split_record('a ,"b, c" ', ","), split_record(" 1  2", " "), split_record("1::2", "::")
    (['a', 'b, c'], ['1', '2'], ['1', '2'])
    """
    if separator == " ":
        return [cell for cell in re.split(r"[ \t]+", record) if cell]
    pattern, cells, position = _compile_field(separator), [], 0
    while True:
        field = pattern.match(record, position)
        if field is None:
            is_closed = re.match(r'"[^"]*+(?:""[^"]*+)*+"', record[position:])
            raise QuoteError("text after a closing quote" if is_closed else "a quote is not closed")
        cell = field["bare"]
        if cell is None:
            cell = field["quoted"].replace('""', '"')
        elif "\r" in cell:
            raise ValueError("a carriage return within the line")
        cells.append(cell.strip(" \t"))
        if not field["end"]:
            return cells
        position = field.end()

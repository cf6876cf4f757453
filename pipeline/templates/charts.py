"""Pictures as inline SVG: a line, bars, and nested areas over epochs. Text labels, a title and a description in each.

Values are non-negative numbers, one per label, oldest first; colours come from the page's style (classes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from .words import number

WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 24


def ticks(top: float) -> list[float]:
    """0 and one or two round numbers up to the first that covers `top`."""
    if top <= 0:
        return [0, 1]
    step = 10 ** math.floor(math.log10(top))
    for factor in (0.5, 1, 2, 2.5, 5, 10):
        size = max(step * factor, 1)
        if size * 2 >= top:
            break
    return [0, size] if size >= top else [0, size, size * 2]


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (value >= size and value % size == 0) or (value >= size and unit != "k"):
            return f"{value / size:g}{unit}"
    return number(value)


class _Frame:
    """The scales of one picture."""

    def __init__(self, labels: Sequence[str], top: float, bars: bool = False) -> None:
        self.labels, self.ticks, self.bars = labels, ticks(top), bars
        self.span = WIDTH - LEFT - RIGHT
        self.step = self.span / max(len(labels) if bars else len(labels) - 1, 1)

    def x(self, place: int) -> float:
        return LEFT + self.step * (place + 0.5 if self.bars else place)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.ticks[-1])

    def wrap(self, ident: str, title: str, text: str, body: Markup) -> Markup:
        grid = Markup("")
        for tick in self.ticks:
            y = self.y(tick)
            grid += Markup('<path class="grid" d="M{} {}H{}"/>').format(LEFT, _at(y), WIDTH - RIGHT)
            grid += _label(LEFT - 6, y + 4, _short(tick), end=True)
        ends = _label(LEFT, HEIGHT - 6, self.labels[0])
        if len(self.labels) > 1:
            ends += _label(WIDTH - RIGHT, HEIGHT - 6, self.labels[-1], end=True)
        return Markup(
            '<svg viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d"><title id="{}-t">{}</title>'
            '<desc id="{}-d">{}</desc>{}{}{}</svg>'
        ).format(WIDTH, HEIGHT, ident, ident, ident, title, ident, text, grid, body, ends)


def _at(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _label(x: float, y: float, text: str, end: bool = False) -> Markup:
    anchor = Markup(' text-anchor="end"') if end else ""
    return Markup('<text x="{}" y="{}"{}>{}</text>').format(_at(x), _at(y), anchor, text)


def _path(frame: _Frame, values: Sequence[float], stepped: bool) -> str:
    parts = [f"M{_at(frame.x(0))} {_at(frame.y(values[0]))}"]
    for place, value in enumerate(values[1:], 1):
        x, y = _at(frame.x(place)), _at(frame.y(value))
        parts.append(f"H{x}V{y}" if stepped else f"L{x} {y}")
    return "".join(parts)


def _said(name: str, labels: Sequence[str], values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return (
        f"{name} from {labels[0]} to {labels[-1]}: {number(values[0])} at first, {number(values[-1])} at last, least "
        f"{number(low)} ({labels[values.index(low)]}), most {number(high)} ({labels[values.index(high)]})."
    )


def line(ident: str, name: str, labels: Sequence[str], values: Sequence[float], stepped: bool = False) -> Markup:
    """A line over epochs with a dot at the last one."""
    if not values:
        return Markup("")
    values = list(values)
    frame = _Frame(labels, max(values))
    path = _path(frame, values, stepped)
    last, floor = frame.x(len(values) - 1), _at(frame.y(0))
    drawn = Markup('<path class="fill" d="{}V{}H{}Z"/><path class="line" d="{}"/>').format(path, floor, LEFT, path)
    drawn += Markup('<circle class="dot" cx="{}" cy="{}" r="3.5"/>').format(_at(last), _at(frame.y(values[-1])))
    return frame.wrap(ident, f"{name} over epochs", _said(name, labels, values), drawn)


def bars(ident: str, name: str, labels: Sequence[str], values: Sequence[float], middle: float | None = None) -> Markup:
    """A bar per epoch, the last one marked; `middle` is drawn as a dashed line (a median)."""
    if not values:
        return Markup("")
    values = list(values)
    frame = _Frame(labels, max([*values, middle or 0]), bars=True)
    width = max(frame.step * 0.76, 0.4)
    drawn = Markup("").join(
        Markup('<path class="{}" d="M{} {}V{}H{}V{}Z"><title>{}: {}</title></path>').format(
            "bar now" if place == len(values) - 1 else "bar",
            _at(frame.x(place) - width / 2), _at(frame.y(0)), _at(frame.y(value)),
            _at(frame.x(place) + width / 2), _at(frame.y(0)), labels[place], number(value),
        )
        for place, value in enumerate(values)
        if value
    )  # fmt: skip
    text = _said(name, labels, values)
    if middle is not None:
        drawn += Markup('<path class="middle" d="M{} {}H{}"/>').format(LEFT, _at(frame.y(middle)), WIDTH - RIGHT)
        text += f" The dashed line is the median of the epochs before, {number(middle)}."
    return frame.wrap(ident, f"{name} over epochs", text, drawn)


def nested(ident: str, name: str, labels: Sequence[str], levels: Sequence[tuple[str, Sequence[float]]]) -> Markup:
    """Areas that hold each other (each level at most the one before it), from light to dark."""
    if not levels or not labels:
        return Markup("")
    frame = _Frame(labels, max(max(values) for _, values in levels))
    floor, drawn, text = _at(frame.y(0)), Markup(""), ""
    for place, (title, values) in enumerate(levels):
        drawn += Markup('<path class="level level-{}" d="{}V{}H{}Z"/>').format(
            place, _path(frame, values, False), floor, LEFT
        )
        text += f"{title}: {number(values[-1])} at last, most {number(max(values))}. "
    return frame.wrap(ident, f"{name} over epochs", text.strip(), drawn)

"""Charts and pictures as inline SVG: lines, bars, nested areas and flows over epochs, and graphs.

Each has text labels, a title and a description. Values are non-negative numbers, one per label, the oldest first.
Colours come from classes in the page's style. Labels and names are escaped here, once; everything else in the markup is
a number or a constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from .formatting import format_number

WIDTH, HEIGHT = 360, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 24
MAX_POINTS = 400  # points of a line; the picture is narrower than so many pixels


def axis_ticks(top: float) -> list[float]:
    """Return the ticks of an axis: 0 and at most three round whole steps, of which the last is not below `top`."""
    if top <= 0:
        return [0, 1]
    power = 10 ** math.floor(math.log10(top / 3))
    steps = (max(power * factor, 1) for factor in (1, 2, 2.5, 3, 4, 5, 10))
    step = next(step for step in steps if step * 3 >= top and step == int(step))
    return [step * place for place in range(math.ceil(top / step) + 1)]


def _short_number(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return format_number(value)


class _Frame:
    """The scales of one chart."""

    def __init__(self, labels: Sequence[str], top: float, bars: bool = False) -> None:
        self.labels, self.ticks, self.bars = labels, axis_ticks(top), bars
        self.span = WIDTH - LEFT - RIGHT
        self.step = self.span / max(len(labels) if bars else len(labels) - 1, 1)

    def x(self, place: int) -> float:
        return LEFT + self.step * (place + 0.5 if self.bars else place)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / self.ticks[-1])

    def path(self, values: Sequence[float], *, stepped: bool = False) -> str:
        parts = [f"M{_coordinate(self.x(0))} {_coordinate(self.y(values[0]))}"]
        for place in _drawn_points(values)[1:]:
            x, y = _coordinate(self.x(place)), _coordinate(self.y(values[place]))
            parts.append(f"H{x}V{y}" if stepped else f"L{x} {y}")
        return "".join(parts)

    def wrap(self, ident: str, title: str, text: str, body: str, ticks: Sequence[str] = ()) -> Markup:
        """Return the whole chart as SVG.

        Args:
            ident: The prefix of the ids in the markup.
            title: The title.
            text: The description.
            body: The drawn values.
            ticks: The labels of the ticks, where they are not the numbers.
        """
        grid = ""
        for place, tick in enumerate(self.ticks):
            y, tick_label = self.y(tick), ticks[place] if ticks else _short_number(tick)
            grid += f'<path class="grid" d="M{LEFT} {_coordinate(y)}H{WIDTH - RIGHT}"/>' + _text_label(
                LEFT - 6, y + 4, tick_label, end=True
            )
        ends = _text_label(LEFT, HEIGHT - 6, self.labels[0])
        if len(self.labels) > 1:
            ends += _text_label(WIDTH - RIGHT, HEIGHT - 6, self.labels[-1], end=True)
        description = f'<title id="{ident}-t">{escape(title)}</title><desc id="{ident}-d">{escape(text)}</desc>'
        named = f'role="img" aria-labelledby="{ident}-t {ident}-d"'
        return Markup(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" {named}>{description}{grid}{body}{ends}</svg>')


def _drawn_points(values: Sequence[float]) -> list[int]:
    """Return the indices of the points that are drawn: all, or the least and the greatest of each span."""
    if len(values) <= MAX_POINTS:
        return list(range(len(values)))
    size = math.ceil(2 * len(values) / MAX_POINTS)
    places = {0, len(values) - 1}
    for begin in range(0, len(values), size):
        part = range(begin, min(begin + size, len(values)))
        places |= {min(part, key=values.__getitem__), max(part, key=values.__getitem__)}
    return sorted(places)


def _coordinate(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text_label(x: float, y: float, text: str, *, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{_coordinate(x)}" y="{_coordinate(y)}"{anchor}>{escape(text)}</text>'


def _chart_description(name: str, labels: Sequence[str], values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return (
        f"{name} from {labels[0]} to {labels[-1]}: {format_number(values[0])} at first, "
        f"{format_number(values[-1])} at last, least "
        f"{format_number(low)} ({labels[values.index(low)]}), most {format_number(high)} "
        f"({labels[values.index(high)]})."
    )


def line_chart(
    ident: str, name: str, labels: Sequence[str], values: Sequence[float], stepped: bool = False, top: float = 0
) -> Markup:
    """Draw a line over epochs with a dot at the last one. The scale reaches at least `top`."""
    if not values:
        return Markup("")
    frame = _Frame(labels, max(*values, top))
    path, floor = frame.path(values, stepped=stepped), _coordinate(frame.y(0))
    x, y = _coordinate(frame.x(len(values) - 1)), _coordinate(frame.y(values[-1]))
    drawn = f'<path class="fill" d="{path}V{floor}H{LEFT}Z"/><path class="line" d="{path}"/>'
    drawn += f'<circle class="dot" cx="{x}" cy="{y}" r="3.5"/>'
    return frame.wrap(ident, f"{name} over epochs", _chart_description(name, labels, values), drawn)


def bar_chart(
    ident: str, name: str, labels: Sequence[str], values: Sequence[float], middle: float | None = None
) -> Markup:
    """Draw a bar per epoch, with the last one marked; `middle`, the usual value, is a dashed line."""
    if not values:
        return Markup("")
    frame = _Frame(labels, max([*values, middle or 0]), bars=True)
    width, floor, drawn = max(frame.step * 0.76, 0.4), _coordinate(frame.y(0)), ""
    for place, value in enumerate(values):
        left, right = frame.x(place) - width / 2, frame.x(place) + width / 2
        kind = "bar now" if place == len(values) - 1 else "bar"
        shape = f"M{_coordinate(left)} {floor}V{_coordinate(frame.y(value))}H{_coordinate(right)}V{floor}Z"
        drawn += (
            f'<path class="{kind}" d="{shape}"><title>{escape(labels[place])}: {format_number(value)}</title></path>'
        )
    text = _chart_description(name, labels, values)
    if middle is not None:
        drawn += f'<path class="middle" d="M{LEFT} {_coordinate(frame.y(middle))}H{WIDTH - RIGHT}"/>'
        text += f" The dashed line is the usual value, {format_number(middle)}."
    return frame.wrap(ident, f"{name} over epochs", text, drawn)


def shade_of_level(place: int, levels: int) -> int:
    """Return the colour of one of at most six levels, from 0 (light) to 5 (dark); fewer levels are further apart."""
    return 6 * (place + 1) // levels - 1


def nested_area_chart(
    ident: str, name: str, labels: Sequence[str], levels: Sequence[tuple[str, Sequence[float]]]
) -> Markup:
    """Draw nested areas from light to dark. The values of each level are at most those of the level before."""
    if not levels or not labels:
        return Markup("")
    frame = _Frame(labels, max(max(values) for _, values in levels))
    floor, drawn, text = _coordinate(frame.y(0)), "", ""
    for place, (title, values) in enumerate(levels):
        drawn += (
            f'<path class="level level-{shade_of_level(place, len(levels))}" d="{frame.path(values)}V{floor}H{LEFT}Z"/>'
        )
        text += f"{title}: {format_number(values[-1])} at last, most {format_number(max(values))}. "
    return frame.wrap(ident, f"{name} over epochs", text.strip(), drawn)


def band_chart(
    ident: str, name: str, labels: Sequence[str], points: Sequence[tuple[float, float | None, float | None, bool]]
) -> Markup:
    """Draw a line over a band of usual values, on the scale of `log(1 + x)`, because the numbers differ by factors.

    Args:
        ident: The prefix of the ids in the markup.
        name: What the values are.
        labels: The labels of the points.
        points: For each point its value, the low and the high end of the band (None: not known), and whether it failed.
    """
    tops = [max(value, high or 0) for value, _, high, _ in points]
    most = min(max(tops, default=0), 20 * max((value for value, *_ in points), default=0) + 1)
    frame = _Frame(labels, math.log1p(most))
    frame.ticks = [math.log1p(tick) for tick in _decade_ticks(most)]
    y = [frame.y(min(math.log1p(value), frame.ticks[-1])) for value, *_ in points]

    def band_edge(value: float | None) -> str:
        return _coordinate(frame.y(min(math.log1p(max(value or 0, 0)), frame.ticks[-1])))

    drawn = ""
    for place, (_, low, high, _) in enumerate(points):
        if low is not None and high is not None:
            left = _coordinate(max(frame.x(place) - frame.step / 2, LEFT))
            right = _coordinate(min(frame.x(place) + frame.step / 2, WIDTH - RIGHT))
            drawn += f'<path class="band" d="M{left} {band_edge(low)}V{band_edge(high)}H{right}V{band_edge(low)}Z"/>'
    path = "".join(
        f"{'L' if place else 'M'}{_coordinate(frame.x(place))} {_coordinate(y[place])}" for place in range(len(points))
    )
    drawn += f'<path class="line" d="{path}"/>'
    for place, (value, _, _, failed) in enumerate(points):
        if failed:
            x, cross_y = frame.x(place), y[place]
            left, top, bottom = map(_coordinate, (x - 3, cross_y - 3, cross_y + 3))
            cross = f"M{left} {top}l6 6M{left} {bottom}l6 -6"
            drawn += (
                f'<path class="cross" d="{cross}"><title>{escape(labels[place])}: {format_number(value)}</title></path>'
            )
    failures = [label for label, point in zip(labels, points, strict=True) if point[3]]
    text = _chart_description(name, labels, [value for value, *_ in points])
    text += f" It failed at {', '.join(failures[-5:])}." if failures else " It failed nowhere."
    return frame.wrap(
        ident, f"{name} over epochs", text, drawn, [_short_number(round(math.expm1(tick))) for tick in frame.ticks]
    )


def _decade_ticks(most: float) -> list[float]:
    """Return 0 and at most five powers of ten, of which the last is not below `most`."""
    top = max(math.ceil(math.log10(max(most, 1))), 1)
    every = range(top, -1, -1 - top // 5)
    return [0, *sorted(10**power for power in every if power or top < 3)]


def flow_chart(ident: str, name: str, steps: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw communities over epochs: a block for each, and ribbons between consecutive epochs for shared vertices.

    The height of a block or a ribbon is its number of vertices.
    """
    width, height, gap, block = 2 * WIDTH, 230, 4, 16
    most = max((sum(g["vertices"] for g in step["communities"]) for step in steps), default=0)
    groups = max((len(step["communities"]) for step in steps), default=0)
    if not most:
        return Markup("")
    unit = (height - TOP - BOTTOM - gap * groups) / most
    across = (width - 2 * LEFT - block) / max(len(steps) - 1, 1)
    tops: list[list[float]] = []
    for step in steps:
        y, column_tops = float(TOP), []
        for group in step["communities"]:
            column_tops.append(y)
            y += group["vertices"] * unit + gap
        tops.append(column_tops)
    ribbons = blocks = ""
    for place, step in enumerate(steps):
        x = LEFT + place * across
        used: dict[tuple[int, int], float] = {}
        for i, j, count in step["flows"] if place else ():
            old, new, thick = tops[place - 1][i], tops[place][j], count * unit
            # A vertex may be in several communities, so that ribbons are kept within their blocks.
            room = steps[place - 1]["communities"][i]["vertices"] * unit, step["communities"][j]["vertices"] * unit
            left = old + min(used.get((0, i), 0.0), max(room[0] - thick, 0))
            right = new + min(used.get((1, j), 0.0), max(room[1] - thick, 0))
            used[0, i], used[1, j] = used.get((0, i), 0.0) + thick, used.get((1, j), 0.0) + thick
            one, other, middle = x - across + block, x, x - (across - block) / 2
            ribbons += (
                f'<path class="ribbon" d="M{_coordinate(one)} {_coordinate(left)}C{_coordinate(middle)} '
                f"{_coordinate(left)} {_coordinate(middle)} {_coordinate(right)} "
                f"{_coordinate(other)} "
                f"{_coordinate(right)}V{_coordinate(right + thick)}C{_coordinate(middle)} "
                f"{_coordinate(right + thick)} {_coordinate(middle)} "
                f'{_coordinate(left + thick)} {_coordinate(one)} {_coordinate(left + thick)}Z"/>'
            )
        for y, group in zip(tops[place], step["communities"], strict=True):
            tall, number = group["vertices"] * unit, group["number"]
            tooltip = f"{step['label']}: {number}, {group['vertices']} vertices, {group['edges']} edges"
            blocks += (
                f'<rect class="block" x="{_coordinate(x)}" y="{_coordinate(y)}" width="{block}" '
                f'height="{_coordinate(tall)}">'
                f"<title>{escape(tooltip)}</title></rect>"
            )
            if tall >= 10:
                blocks += (
                    f'<text class="in" x="{_coordinate(x + block / 2)}" '
                    f'y="{_coordinate(y + tall / 2 + 4)}">{number}</text>'
                )
    ends = _text_label(LEFT, height - 6, steps[0]["label"]) + _text_label(
        width - LEFT, height - 6, steps[-1]["label"], end=True
    )
    counts = [len(step["communities"]) for step in steps]
    text = f"{counts[0]} at {steps[0]['label']}, {counts[-1]} at {steps[-1]['label']}. The table below says the same."
    description = f'<title id="{ident}-t">{escape(name)}</title><desc id="{ident}-d">{escape(text)}</desc>'
    named = f'role="img" aria-labelledby="{ident}-t {ident}-d"'
    return Markup(f'<svg viewBox="0 0 {width} {height}" {named}>{description}{ribbons}{blocks}{ends}</svg>')


def graph_picture(
    ident: str, name: str, names: Sequence[str], lines: Sequence[tuple[int, int, int]], middle: int | None = None
) -> Markup:
    """Draw a graph of up to some 60 vertices. The same graph is always drawn in the same way.

    Args:
        ident: The prefix of the ids in the markup.
        name: The title.
        names: The names of the vertices.
        lines: The edges: the indices of both ends, and a weight.
        middle: The index of the vertex that the picture is about, if there is one.
    """
    width, height, edge = 560, 400, 28
    positions = _spring_layout(len(names), [(a, b) for a, b, _ in lines])
    x = [edge + 14 + (width - 2 * edge - 28) * place[0] for place in positions]
    y = [edge + (height - 2 * edge) * place[1] for place in positions]
    most = max((weight for *_, weight in lines), default=0)
    drawn = ""
    for a, b, weight in sorted(lines, key=lambda line: line[2]):
        kind, shape = (
            "tie strong" if weight == most else "tie",
            f"M{_coordinate(x[a])} {_coordinate(y[a])}L{_coordinate(x[b])} {_coordinate(y[b])}",
        )
        drawn += f'<path class="{kind}" d="{shape}"/>'
    for place, called in enumerate(names):
        short = called if len(called) <= 14 else f"{called[:13]}…"
        kind, radius = ("node it", 8) if place == middle else ("node", 4)
        dot = f'<circle class="{kind}" cx="{_coordinate(x[place])}" cy="{_coordinate(y[place])}" r="{radius}">'
        drawn += f"{dot}<title>{escape(called)}</title></circle>"
        drawn += (
            f'<text class="name" x="{_coordinate(x[place])}" '
            f'y="{_coordinate(y[place] - radius - 3)}">{escape(short)}</text>'
        )
    text = f"{len(names)} vertices and {len(lines)} edges; the thick ones have trussness {most}."
    description = f'<title id="{ident}-t">{escape(name)}</title><desc id="{ident}-d">{escape(text)}</desc>'
    named = f'role="img" aria-labelledby="{ident}-t {ident}-d"'
    return Markup(f'<svg viewBox="0 0 {width} {height}" {named}>{description}{drawn}</svg>')


def _spring_layout(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Compute the positions of vertices in the unit square: edges are springs, and all vertices repel each other.

    Source: Fruchterman, Reingold 1991, beginning with a circle. For this number of vertices 300 steps are enough.
    """
    import numpy as np

    turn = np.arange(count) * (2 * np.pi / max(count, 1))
    positions = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    tied = np.zeros((count, count))
    for a, b in edges:
        tied[a, b] = tied[b, a] = 1
    ideal = 2 / np.sqrt(max(count, 1))
    for step in range(300):
        apart = positions[:, None, :] - positions[None, :, :]
        far = np.maximum(np.sqrt((apart**2).sum(axis=2)), 0.01)
        force = ideal**2 / far**2 - tied * far / ideal
        push = (apart * force[:, :, None]).sum(axis=1)
        size = np.maximum(np.sqrt((push**2).sum(axis=1, keepdims=True)), 1e-9)
        positions += push / size * np.minimum(size, 0.2 * (1 - step / 300))
    low, high = positions.min(axis=0), positions.max(axis=0)
    return [(float(u), float(v)) for u, v in (positions - low) / np.maximum(high - low, 1e-9)]

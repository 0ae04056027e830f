"""Picture of a run: latency by percentile, and rate and latency by time, as SVG (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from quire.cli.perf.histogram import LatencyHistogram
from quire.cli.perf.meter import Sample

_WIDTH, _HEIGHT = 900, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 45
_GREEN, _BLUE, _RED = "#2a7f62", "#2c5f9e", "#c0392b"
_NINES = ((0.0, "0"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %"))
_SAMPLES_MAX = 600


def draw(title: str, whole: LatencyHistogram, samples: Sequence[Sample], unit_ms: float) -> str:
    """Return the picture as the text of an SVG file."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{3 * _HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_WIDTH / 2}" y="18" text-anchor="middle" font-size="14">{escape(title)}</text>',
    ]
    parts += _by_percentile(whole, unit_ms)
    shown = _thinned(samples)
    at = [each.at_s for each in shown]
    parts += _over_time(1, "messages per second", at, [("rate", _GREEN, [each.rate for each in shown])])
    lines = [
        ("median", _GREEN, [each.median * unit_ms for each in shown]),
        ("99 %", _BLUE, [each.high * unit_ms for each in shown]),
        ("maximum", _RED, [each.maximum * unit_ms for each in shown]),
    ]
    parts += _over_time(2, "latency in ms", at, lines)
    return "\n".join([*parts, "</svg>", ""])


def _by_percentile(whole: LatencyHistogram, unit_ms: float) -> list[str]:
    parts = [*_frame(0), _label(0, "latency in ms by percentile")]
    steps = whole.steps()
    if not steps:
        return parts
    right = max(math.log10(whole.total) + 0.3, 1.0)
    top = max(whole.maximum * unit_ms, 1e-6)
    for fraction, name in _NINES:
        place = -math.log10(1 - fraction)
        if place <= right:
            x = _x(place, right)
            y = _y(0, 0, 1)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{name}</text>')
    points = [(0.0, steps[0][0] * unit_ms)]
    for value, fraction in steps:
        points.append((min(-math.log10(1 - fraction), right) if fraction < 1 else right, value * unit_ms))
    return [*parts, *_axis(0, top), _line(0, [(_x(x, right), y) for x, y in points], top, _BLUE)]


def _over_time(
    row: int, name: str, at: Sequence[float], lines: Sequence[tuple[str, str, Sequence[float]]]
) -> list[str]:
    parts = [*_frame(row), _label(row, name)]
    if not at:
        return parts
    top = max(max((max(values) for _, _, values in lines), default=0), 1e-6)
    right = max(at[-1], 1e-6)
    parts += _axis(row, top)
    bottom = _y(row, 0, 1)
    for second in (0, right / 2, right):
        parts.append(
            f'<text x="{_x(second, right):.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{second:.0f} s</text>'
        )
    for number, (text, colour, values) in enumerate(lines):
        points = [(_x(x, right), y) for x, y in zip(at, values, strict=True)]
        parts.append(_line(row, points, top, colour))
        if len(lines) > 1:
            x = _LEFT + 10 + 80 * number
            parts.append(f'<text x="{x}" y="{row * _HEIGHT + _TOP + 14}" fill="{colour}">{escape(text)}</text>')
    return parts


def _thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    step = -(-len(samples) // _SAMPLES_MAX) or 1
    return samples[::step]


def _x(value: float, right: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / right


def _y(row: int, value: float, top: float) -> float:
    return row * _HEIGHT + _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _frame(row: int) -> list[str]:
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return [
        f'<rect x="{_LEFT}" y="{row * _HEIGHT + _TOP}" width="{width}" height="{height}" fill="none" stroke="#999"/>'
    ]


def _label(row: int, text: str) -> str:
    return f'<text x="{_LEFT}" y="{row * _HEIGHT + _TOP - 6}">{escape(text)}</text>'


def _axis(row: int, top: float) -> list[str]:
    return [
        f'<text x="{_LEFT - 6}" y="{_y(row, value, top) + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        for value in (0, top / 2, top)
    ]


def _line(row: int, points: Sequence[tuple[float, float]], top: float, colour: str) -> str:
    text = " ".join(f"{x:.1f},{_y(row, y, top):.1f}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.5"/>'

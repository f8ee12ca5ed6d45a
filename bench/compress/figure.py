"""Curves as an SVG in the look of our pages, light and dark."""
import math
from typing import NamedTuple

WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 800, 400, 58, 12, 30, 52
COLORS = [("#0072b2", "#4aa3df"), ("#d55e00", "#ff8c42"), ("#009e73", "#3ecf9f"), ("#a0589b", "#d690d0")]


class Curve(NamedTuple):
    name: str
    points: list


def ticks(low, high, count):
    """Round numbers between low and high, about so many."""
    step = 10 ** math.floor(math.log10((high - low) / count))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= count)
    return [round(step * i, 10) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def styles(count):
    light = "".join(f".c{i}{{--c:{COLORS[i][0]}}}" for i in range(count))
    dark = "".join(f".c{i}{{--c:{COLORS[i][1]}}}" for i in range(count))
    return ("<style>\nsvg{--bg:#fff;--soft:#555d66;--grid:#e6e8eb;background:var(--bg)}\n"
            "svg text{font:12px system-ui,sans-serif;fill:var(--soft)}\nsvg text.name{fill:var(--c)}\n"
            f"{light}\n@media(prefers-color-scheme:dark){{svg{{--bg:#16191d;--soft:#b0b7bf;--grid:#2a3037}}{dark}}}\n"
            ".grid{stroke:var(--grid)}.curve{fill:none;stroke:var(--c);stroke-width:1.7}.point{fill:var(--c)}\n"
            ".level{stroke:var(--soft);stroke-dasharray:2 4}\n</style>")


def draw(path, title, across, curves, levels, ceiling=math.inf):
    """Points above the ceiling are left out; a curve enters the field from there. levels: (name, value), as dotted lines."""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points if y <= ceiling] + [y for _, y in levels]
    margin = 0.05 * (max(ys) - min(ys))
    x0, x1, y0, y1 = min(xs), max(xs), min(ys) - margin, max(ys) + margin

    def at(x, y):
        return (LEFT + (WIDE - LEFT - RIGHT) * (x - x0) / (x1 - x0), TOP + (HIGH - TOP - BOTTOM) * (y1 - y) / (y1 - y0))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}">', f"<title>{title}</title>",
             styles(len(curves)), f'<clipPath id="field"><rect x="{LEFT}" y="{TOP}" width="{WIDE - LEFT}" '
             f'height="{HIGH - TOP - BOTTOM}"/></clipPath>']
    for x in ticks(x0, x1, 8):
        parts.append(f'<path class="grid" d="M{at(x, 0)[0]:.1f} {TOP}V{HIGH - BOTTOM}"/>'
                     f'<text x="{at(x, 0)[0]:.1f}" y="{HIGH - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    for y in ticks(y0, y1, 7):
        parts.append(f'<path class="grid" d="M{LEFT} {at(x0, y)[1]:.1f}H{WIDE - RIGHT}"/>'
                     f'<text x="{LEFT - 8}" y="{at(x0, y)[1] + 4:.1f}" text-anchor="end">{y:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDE) / 2:.0f}" y="{HIGH - 10}" text-anchor="middle">{across}</text>'
                 f'<text x="8" y="18">validation loss</text>')
    for name, value in levels:
        parts.append(f'<path class="level" d="M{LEFT} {at(x0, value)[1]:.1f}H{WIDE - RIGHT}"/>'
                     f'<text x="{LEFT + 8}" y="{at(x0, value)[1] - 6:.1f}">{name}</text>')
    for i, curve in enumerate(curves):
        line = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in curve.points)
        parts.append(f'<g class="c{i}"><g clip-path="url(#field)"><polyline class="curve" points="{line}"/>'
                     + "".join('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="3"/>'.format(*at(x, y)) for x, y in curve.points)
                     + f'</g><text class="name" x="{WIDE - RIGHT - 8}" y="{TOP + 18 + 17 * i}" text-anchor="end">{curve.name}</text></g>')
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")

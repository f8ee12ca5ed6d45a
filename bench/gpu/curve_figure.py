"""Held-out perplexity over the steps of several runs, as a figure."""
import math


def draw(path, curves):
    """curves: name, color, [(step, perplexity)]; perplexity on a logarithmic axis."""
    wide, high, left, bottom = 640, 340, 48, 36
    last = max(step for _, _, line in curves for step, _ in line)
    values = [math.log(value) for _, _, line in curves for _, value in line]
    low, top = min(values), max(values)

    def at(step, value):
        return left + (wide - left - 12) * step / last, 12 + (high - bottom - 12) * (top - math.log(value)) / (top - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif" font-size="12">',
             f'<rect width="{wide}" height="{high}" fill="white"/>']
    for value in (3, 3.5, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500):
        if low <= math.log(value) <= top:
            y = at(0, value)[1]
            parts.append(f'<path d="M{left} {y:.1f}H{wide - 12}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for step in range(0, last + 1, 500):
        parts.append(f'<text x="{at(step, 1)[0]:.1f}" y="{high - 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{wide // 2}" y="{high - 3}" text-anchor="middle">steps; validation perplexity</text>')
    for number, (name, color, line) in enumerate(curves):
        points = " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(f'<text x="{wide - 20}" y="{30 + 17 * number}" text-anchor="end" fill="{color}">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")

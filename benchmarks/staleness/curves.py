"""Draws curves as SVG; pure."""

from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 640, 360, 60, 20, 170, 50
_COLORS = ("#1b6ca8", "#d1495b", "#3c8d5a", "#8d6a9f", "#edae49")
_LOWEST, _HIGHEST = 0.8, 1.0
_FRACTIONS = (0.80, 0.85, 0.90, 0.95, 1.0)


def drawn(courses: Mapping[str, tuple[Sequence[float], Sequence[float]]], below: str, beside: str) -> str:
    """Each course is x and y, y between 0.8 and 1; what is lower is left out.

    Args:
        courses: By name.
        below: What x is.
        beside: What y is.
    """
    most = max(max(x) for x, _ in courses.values())
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> str:
        return f"{_LEFT + width * x / most:.1f},{_TOP + height * (_HIGHEST - y) / (_HIGHEST - _LOWEST):.1f}"

    parts = []
    for fraction in _FRACTIONS:
        (x, y), (end, _) = (map(float, at(one, fraction).split(",")) for one in (0, most))
        parts.append(f'<line x1="{x}" y1="{y}" x2="{end}" y2="{y}" stroke="#ccc"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{fraction:.0%}</text>')
    for share in (0.0, 0.5, 1.0):
        x = _LEFT + width * share
        parts.append(f'<text x="{x}" y="{_TOP + height + 18}" text-anchor="middle">{most * share:,.0f}</text>')
    parts.append(f'<text x="{_LEFT + width / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{below}</text>')
    parts.append(f'<text x="{_LEFT}" y="14">{beside}</text>')
    for index, (name, (x_values, y_values)) in enumerate(courses.items()):
        color = _COLORS[index % len(_COLORS)]
        points = " ".join(at(x, y) for x, y in zip(x_values, y_values, strict=True) if y >= _LOWEST)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        y = _TOP + 20 + 20 * index
        parts.append(f'<rect x="{_WIDTH - _RIGHT + 12}" y="{y - 6}" width="14" height="3" fill="{color}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 32}" y="{y}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )

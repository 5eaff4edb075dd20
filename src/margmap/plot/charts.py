"""Charts of answers: the k best states as a heat table, bounds against time, several methods side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from margmap.errors import QueryError
from margmap.foundation.progress import Moment
from margmap.foundation.wording import listed, spelled
from margmap.plot.picture import Chart, new_figure
from margmap.plot.scene import shortened_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from margmap.solve.result import Result

#: Variables and states on one heat table; cells with more characters are cut.
MOST_ROWS, MOST_COLUMNS, MOST_CHARACTERS = 40, 20, 14

_UPPER, _LOWER = "#b2182b", "#12395c"


def answer(result: Result, *, ax: Axes | None = None) -> Chart:
    """The k best states as a table: a column for each state, a row for each variable of the query.

    The shade of a cell says how much of the probability of the states shown has this value; what differs from the best
    state is bold. Where there are many variables, those on which the states differ come first.
    """
    if result.state is None or not result.state:
        raise QueryError("there is no state to draw: the solver found none, or nothing was asked for")
    top = result.top[:MOST_COLUMNS]
    best = result.state
    differing = [name for name in best if any(one.state[name] != best[name] for one in top)]
    names = [*differing, *(name for name in best if name not in set(differing))][:MOST_ROWS]
    if len(best) <= MOST_ROWS:
        names = list(best)
    # Relative to the best: probabilities themselves may be too small for a number.
    weight = [math.exp(one.log_prob - top[0].log_prob) for one in top]
    total = sum(weight)
    share = [
        [
            sum(w for w, other in zip(weight, top, strict=True) if other.state[name] == one.state[name]) / total
            for one in top
        ]
        for name in names
    ]
    longest = max([len(str(one.state[name])) for one in top for name in names] + [8])
    if ax is None:
        wide = min(max(longest, 8), MOST_CHARACTERS) * 0.085 + 0.35
        figure = new_figure(max(5.0, 2.2 + wide * len(top) + 1.4), max(2.6, 1.5 + 0.28 * len(names)))
        ax = figure.subplots()
    image = ax.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for i, name in enumerate(names):
        for j, one in enumerate(top):
            value = shortened_to(str(one.state[name]), MOST_CHARACTERS).replace("$", r"\$")
            ink = "white" if share[i][j] > 0.55 else "black"
            different = one.state[name] != best[name]
            ax.text(j, i, value, ha="center", va="center", color=ink, fontsize=9, weight="bold" if different else None)
    ax.set_yticks(range(len(names)), [shortened_to(str(name), 24).replace("$", r"\$") for name in names], fontsize=9)
    known = not math.isnan(top[0].log_conditional)
    chances = [f"{math.exp(one.log_conditional):.3g}" if known else f"{one.log_prob:.4g}" for one in top]
    ax.set_xticks(range(len(top)), [f"{rank}.\n{p}" for rank, p in enumerate(chances, 1)], fontsize=9)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("rank and p(q | e)" if known else "rank and log p(q, e) (nats)")
    more = f", {MOST_ROWS} of {len(best)} shown" if len(best) > len(names) else ""
    ax.set_ylabel(f"query variable{more}")
    ax.figure.colorbar(image, ax=ax, label="share of the states shown\nwith this value", fraction=0.05, pad=0.03)
    title = f"The {len(top)} best states" if len(top) > 1 else "The best state"
    ax.set_title(title, weight="bold")
    words = f"A table of {len(names)} variables by {len(top)} states. The best: {listed(best)}; {result.proof}."
    return Chart(ax, title, words)


def bounds(run: Result | Iterable[Moment | Any], *, ax: Axes | None = None) -> Chart:
    """Both bounds against time, for any method.

    ``run`` is a result, or what ``on_progress`` was called with: anything with seconds, log_lower and log_upper.
    """
    found = run.bounds if hasattr(run, "bounds") else run
    moments = [Moment(float(m.seconds), float(m.log_lower), float(m.log_upper)) for m in found]
    if not moments:
        raise QueryError("there are no bounds to draw: they come with a result of marginal_map, or from on_progress")
    if ax is None:
        ax = new_figure(7, 4).subplots()
    seconds = [m.seconds for m in moments]
    end = max([*seconds, getattr(run, "seconds", 0.0)])
    seconds = [*seconds, end]
    upper = [_finite(m.log_upper) for m in moments]
    lower = [_finite(m.log_lower) for m in moments]
    upper, lower = [*upper, upper[-1]], [*lower, lower[-1]]
    ax.fill_between(seconds, lower, upper, step="post", color="#dddddd", label="where the optimum can be")
    ax.step(seconds, upper, where="post", color=_UPPER, linestyle="-", marker="v", markersize=4, label="upper bound")
    ax.step(seconds, lower, where="post", color=_LOWER, linestyle="--", marker="^", markersize=4, label="best state")
    ax.set_xlabel("time (s)")
    ax.set_ylabel("log p(q, e) (nats)")
    method = getattr(run, "method", None)
    title = "Bounds against time" + (f", method {method}" if method else "")
    ax.set_title(title, weight="bold")
    ax.margins(x=0.03, y=0.12)
    ax.grid(alpha=0.3)
    ax.legend(loc="best", fontsize=9)
    last = moments[-1]
    gap = (
        "no state was found" if not math.isfinite(last.log_lower) else f"a gap of {last.log_upper - last.log_lower:.3g}"
    )
    words = f"Two lines over {end:.3g} seconds, {len(moments)} moments. In the end the upper bound is "
    words += f"{last.log_upper:.6g}, the best state {last.log_lower:.6g} nats: {gap}."
    return Chart(ax, title, words)


def compare(results: Mapping[str, Result] | Sequence[Result], *, ax: Sequence[Axes] | None = None) -> Chart:
    """Several answers to one question side by side: between which bounds each left the optimum, and how long it took.

    ``results`` is a mapping from names to results, or a list, whose names are then those of the methods. ``ax`` are two
    axes to draw on.
    """
    named = dict(results) if isinstance(results, Mapping) else _by_method(results)
    if not named:
        raise QueryError("there is nothing to compare: give at least one result")
    if ax is None:
        size = 1.5 + 0.42 * len(named)
        ax = new_figure(9, max(2.8, size)).subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": [3, 2]})
    left, right = ax
    places = list(range(len(named)))
    lows = [_finite(one.log_prob) for one in named.values()]
    highs = [_finite(one.log_upper) for one in named.values()]
    finite = [x for x in (*lows, *highs) if not math.isnan(x)]
    least = min(finite, default=0.0)
    for place, (low, high, one) in enumerate(zip(lows, highs, named.values(), strict=True)):
        if not math.isnan(high):
            left.plot(
                [least if math.isnan(low) else low, high], [place, place], color="#888888", linewidth=5, alpha=0.6
            )
            left.plot(high, place, "v", color=_UPPER, markersize=8, label="upper bound" if place == 0 else None)
        if not math.isnan(low):
            left.plot(low, place, "^", color=_LOWER, markersize=8, label="best state" if place == 0 else None)
        right.text(one.seconds, place, f"  {one.seconds:.3g} s, {spelled(one.status)}", va="center", fontsize=9)
    right.barh(places, [one.seconds for one in named.values()], color="#8fb3d1", edgecolor="#12395c", height=0.5)
    left.set_yticks(places, [shortened_to(str(name), 24).replace("$", r"\$") for name in named])
    left.set_ylim(len(named) - 0.5, -0.5)
    left.set_xlabel("log p(q, e) (nats)")
    left.set_ylabel("method")
    left.margins(x=0.08)
    left.ticklabel_format(axis="x", useOffset=False)
    left.grid(axis="x", alpha=0.3)
    if finite:
        left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, fontsize=9, frameon=False)
    longest = max(one.seconds for one in named.values())
    right.set_xlim(0, max(longest, 1e-6) * 1.9)
    right.set_xlabel("time (s)")
    right.grid(axis="x", alpha=0.3)
    title = f"{len(named)} answers to one question"
    left.set_title("Bounds", fontsize=10)
    right.set_title("Time and end", fontsize=10)
    left.figure.suptitle(title, weight="bold")
    said = [
        f"{name}: {one.log_prob:.6g} to {one.log_upper:.6g} nats, {one.seconds:.3g} s" for name, one in named.items()
    ]
    return Chart(left, title, f"For each method both bounds and the time. {'; '.join(said)}.")


def _by_method(results: Sequence[Result]) -> dict[str, Result]:
    """Results by the names of their methods; a second one of the same method gets a number."""
    named: dict[str, Result] = {}
    for one in results:
        name, number = one.method, 2
        while name in named:
            name, number = f"{one.method} ({number})", number + 1
        named[name] = one
    return named


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else math.nan

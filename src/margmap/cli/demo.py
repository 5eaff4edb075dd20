"""``margmap demo``: a diagnosis and half-hidden digits, each answered by marginal MAP and by MPE."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from margmap.cli.options import Json, option
from margmap.cli.output import print_json, printable, spinner

if TYPE_CHECKING:
    from margmap.demo import Comparison

#: Digits on the terminal; the picture has all.
_ON_TERMINAL = 2
_BAR = 40


def demo(
    output: Annotated[Path, option("FILE.png", "Where to write the picture.", "--output", "-o")] = Path(
        "margmap-demo.png"
    ),
    json: Json = False,
) -> None:
    """Ask two bundled models, a clinic and half-hidden digits: exact marginal MAP beside what MPE would suggest."""
    with spinner("Loading ..."):
        from margmap import demo as models
        from margmap.demo import picture

    with spinner("Solving ..."):
        patient = models.compare(models.load_model(), models.QUERY, models.FEVER, k=3)
    if not json:
        _show_diagnosis(patient)
    with spinner("Solving ..."):
        circuit, shown = models.load_digits(), models.held_out()
        with _without_waiting():
            found = [models.complete_digit(circuit, digit) for digit in shown]
    picture.write_demo(shown, found, output)
    if json:
        rows = [{"label": d.label, **answer.to_dict()} for d, answer in zip(shown, found, strict=True)]
        facts = {"model": models.DIGITS_MODEL, "picture": str(output), "digits": rows}
        print_json({"diagnosis": patient.to_dict(), **facts, "held_out": models.measured()})
        return
    asked, seen = len(found[0].query), len(found[0].evidence)
    print("\n2. Handwritten digits, of which the upper half is seen. What is in the middle of the lower half?")
    print(f"   {asked} pixels are asked for, and the {len(circuit.variables) - asked - seen} beside them summed out.")
    for digit, answer in zip(shown[:_ON_TERMINAL], found, strict=False):
        best, other = map(picture.percent, picture.likely(answer))
        print("\n" + "\n".join(f"   {line}".rstrip() for line in picture.text(picture.panels(digit, answer))))
        print(f"   {'':19}{best:<19}{other}")
        print(f"   marginal MAP: {answer.marginal_map.proof}")
    _show_sums(models.measured())
    print(f"\nThe picture of {len(shown)} digits: {printable(str(output))}")
    print("Next:  margmap explore    click your own questions on a local page (pip install 'margmap[explore]')")
    print("       margmap solve clinic --query illness,course --evidence season=spring,fever=high")
    print("       the tour           docs/tour.md: ten minutes, from the first question to a model of your own table")


@contextmanager
def _without_waiting() -> Iterator[None]:
    """Where nothing is compiled yet, the digits are interpreted: that takes seconds, and compiling half a minute."""
    from margmap.foundation import background, jit

    if jit.chosen_tier() == "auto" and not background.is_warm():
        with jit.forced("interpret"):
            yield
    else:
        yield


def _show_diagnosis(found: Comparison) -> None:
    """The best answers and MPE's as bars, the winner's proof, and why they differ."""
    from margmap.demo.picture import percent

    print("1. A patient has a high fever, and it is spring. What is the most likely illness and its course?\n")
    rows = [("marginal MAP", one.state, one.log_conditional) for one in found.marginal_map.top[:1]]
    rows += [("", one.state, one.log_conditional) for one in found.marginal_map.top[1:]]
    rows.append(("MPE", found.projected, found.log_projected))
    for title, state, log_probability in rows:
        share = math.exp(log_probability)
        bar = "#" * max(1, round(_BAR * share))
        print(f"   {title:<13} {', '.join(map(str, state.values())):<16} {percent(log_probability):>6}  {bar}")
    print(f"\n   {found.marginal_map.proof}.")
    print(
        "   MPE takes the single most likely complete description of a patient and reads the illness off it. Mild\n"
        "   allergies look much alike, so one description holds most of their probability; flu is spread over many.\n"
        "   Only summing up what was not asked for tells which illness is likely."
    )


def _show_sums(sums: dict[str, float]) -> None:
    """What the two answers are worth on all digits that were held out, as the script that made the model found."""
    digits, pixels = int(sums["digits"]), int(sums["pixels"])
    print(f"\n   All {digits} digits that the model was not learned from (scripts/make_digits_model.py):\n")
    print(f"   {'':34}{'marginal MAP':>14}{'MPE':>8}{'each pixel alone':>19}")
    mean = f"{100 * sums['map_probability']:.1f} %", f"{100 * sums['mpe_probability']:.1f} %"
    print(f"   {'mean probability of the answer':<34}{mean[0]:>14}{mean[1]:>8}")
    for what, name in ((f"pixels right, of {pixels}", "pixels"), (f"middles all right, of {digits}", "digits")):
        one, two, three = (int(sums[f"{who}_{name}_right"]) for who in ("map", "mpe", "single"))
        print(f"   {what:<34}{one:>14}{two:>8}{three:>19}")
    print(f"   Marginal MAP and MPE differ on {int(sums['differ'])} digits. Pixel by pixel, more pixels are right; but")
    print("   they need not go together: what is asked for is the most likely combination.")

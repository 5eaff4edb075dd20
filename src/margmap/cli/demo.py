"""``margmap demo``: half-hidden digits, completed by marginal MAP and by MPE."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from margmap.cli.options import Json, option
from margmap.cli.output import print_json, printable, spinner


def demo(
    output: Annotated[Path, option("FILE.png", "Where to write the picture.", "--output", "-o")] = Path(
        "margmap-demo.png"
    ),
    json: Json = False,
) -> None:
    """Complete half-hidden digits on a bundled model: exact marginal MAP beside what MPE would suggest."""
    with spinner("Loading ..."):
        from margmap import demo as digits

        circuit, shown = digits.load_digits(), digits.held_out()
    with spinner("Solving ..."):
        found = [digits.complete_digit(circuit, digit) for digit in shown]
    pictures = [digits.panels(digit, answer) for digit, answer in zip(shown, found, strict=True)]
    digits.write_picture(pictures, output)
    if json:
        rows = [{"label": d.label, **answer.to_dict()} for d, answer in zip(shown, found, strict=True)]
        print_json({"model": digits.DIGITS_MODEL, "picture": str(output), "digits": rows})
        return
    pixels, asked, seen = len(circuit.variables), len(found[0].query), len(found[0].evidence)
    print(f"Handwritten digits, of which the upper half is seen (a learned model of {pixels} pixels).")
    print(f"Asked: the most likely ink in the middle of the lower half ({asked} pixels); ", end="")
    print(f"the {pixels - asked - seen} beside it are summed out.")
    for picture, answer in zip(pictures[:3], found, strict=False):
        print("\n" + "\n".join(digits.text(picture)))
        best, other = (
            f"{100 * math.exp(x):.1f} %" for x in (answer.marginal_map.log_conditional, answer.log_projected)
        )
        print(f"probability of the middle given the upper half: marginal MAP {best}, MPE's {other}")
        print(f"marginal MAP: {answer.marginal_map.proof}")
    print(
        "\nMPE is the single most likely lower half; its middle need not be the most likely one, which collects the\n"
        "probability of every lower half that it is part of: only summing up tells."
    )
    print(f"All {len(shown)} digits: {printable(str(output))}")

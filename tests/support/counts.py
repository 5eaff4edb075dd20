"""How many generated cases the tests go through: enough by default, ``MARGMAP_THOROUGH=3`` is three times as many.

The nightly run and ``scripts/mutate.py`` ask for three. Single tests have a switch of their own beside it.
"""

import os

THOROUGH = int(os.environ.get("MARGMAP_THOROUGH", "1"))


def cases(usual, switch=None):
    """So many cases, times what was asked for; ``switch`` names the variable that sets the number itself."""
    return int(os.environ.get(switch or "", usual * THOROUGH))

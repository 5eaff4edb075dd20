"""A server of the page in this process, and models for it."""

import numpy as np

import margmap as mm
from margmap.explore.server import Server, Settings

#: The name of a variable and of a state that would do harm if a page took it for markup.
HOSTILE = "</script><img src=x onerror='window.hacked=1'>\"&amp;{{7*7}}"


def serving(model, **settings):
    """A server that answers until the end of the block."""
    return Server(Settings(model, **settings)).serving()


def hostile_model():
    """A circuit whose names are markup, code, spaces and separators."""
    names = [HOSTILE, "a=b,c", "'; rm -rf ~", " spaced ", "=1+1"]
    variables = [mm.Variable(name, 2, (f"{HOSTILE}{i}", f"no, {i}")) for i, name in enumerate(names)]
    first = [mm.categorical(v, [0.3 + 0.1 * i, 0.7 - 0.1 * i]) for i, v in enumerate(variables)]
    second = [mm.categorical(v, [0.8 - 0.1 * i, 0.2 + 0.1 * i]) for i, v in enumerate(variables)]
    product = lambda leaves: leaves[0] * leaves[1] * leaves[2] * leaves[3] * leaves[4]  # noqa: E731
    return mm.circuit_of(0.6 * product(first) + 0.4 * product(second), variables)


def hard_model(variables=40, components=60):
    """A mixture of nearly fair coins, for which no proof comes within minutes."""
    rng = np.random.default_rng(0)
    coins = [mm.Variable(f"coin{i}") for i in range(variables)]
    total = None
    for _ in range(components):
        part = None
        for coin in coins:
            leaf = mm.bernoulli(coin, float(rng.uniform(0.3, 0.7)))
            part = leaf if part is None else part * leaf
        weighted = (1 / components) * part
        total = weighted if total is None else total + weighted
    return mm.circuit_of(total, coins)

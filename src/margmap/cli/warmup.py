"""``margmap warmup``: compile all kernels ahead, for images, clusters and classes."""

from __future__ import annotations

from typing import Annotated

import typer

from margmap.cli.base import UNEXPECTED
from margmap.cli.options import Json, option
from margmap.cli.output import bar, complain, report


def warmup(
    jobs: Annotated[int | None, option("N", "Processes; without: one a core.", "--jobs", "-j", min=1)] = None,
    json: Json = False,
) -> None:
    """Compile everything ahead, on all cores, so that no later question waits or is interpreted."""
    from margmap.foundation.background import folder
    from margmap.foundation.cores import usable_cores
    from margmap.warmup import PATHS, ahead

    with bar("Compiling", len(PATHS)) as done:
        found = ahead(jobs or usable_cores(), lambda more, name, of: done(more, f"Compiling: {name} done", of))
    facts = {**found, "folder": str(folder())}
    if not found["numba"]:
        report(json, facts, "numba is not installed: there is nothing to compile")
        return
    report(json, facts, f"{found['kernels']} kernels compiled in {found['seconds']:.3g} s; the others were there")
    if found["failed"]:
        names = ", ".join(found["failed"])
        complain(f"not compiled, or not kept on the disk: {names}; margmap works all the same, and compiles when asked")
        raise typer.Exit(UNEXPECTED)

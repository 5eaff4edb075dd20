"""``python -m margmap``, and the command ``margmap``: Ctrl-C ends it with one line from the first moment on."""

from margmap.foundation.interrupts import take_over


def main() -> None:
    """Entry point of the command."""
    take_over()
    from margmap.cli import main as command

    command()


if __name__ == "__main__":
    main()

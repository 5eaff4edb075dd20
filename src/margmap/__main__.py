"""``python -m margmap`` is the command ``margmap``."""

from margmap.cli import main

if __name__ == "__main__":
    main()

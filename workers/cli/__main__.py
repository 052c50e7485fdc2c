"""python -m workers.cli: feedctl, for programs that start it again."""

from workers.cli import main

main()

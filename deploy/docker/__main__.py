"""`python -m deploy.docker`."""

import sys

from deploy.docker.cli import main

sys.exit(main(sys.argv[1:]))

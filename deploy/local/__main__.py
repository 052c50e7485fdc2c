"""`python -m deploy.local`."""

import sys

from deploy.local.cli import main

sys.exit(main(sys.argv[1:]))

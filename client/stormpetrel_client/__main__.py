"""`python -m stormpetrel_client`."""

import sys

from stormpetrel_client.command import program

sys.exit(program())

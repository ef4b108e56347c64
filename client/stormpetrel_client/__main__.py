"""`python -m stormpetrel_client`."""

import sys

from stormpetrel_client.command import main

sys.exit(main())

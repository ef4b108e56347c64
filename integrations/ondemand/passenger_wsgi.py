"""What Passenger starts, as the user who is logged in to Open OnDemand: `application`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # stormpetrel_ondemand, and a copy of stormpetrel_client beside it

from stormpetrel_ondemand.application import application

__all__ = ["application"]

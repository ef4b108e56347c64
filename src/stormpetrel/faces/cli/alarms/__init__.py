"""`stormpetrel alarms` and `stormpetrel notify`: incidents, what people do about them, and their messages."""

"""Jobs one by one, past, present or not yet submitted: what is to be said about them, why, and what to change."""

"""Jobs one by one, past, present or not yet submitted: their predictions, why, and what to change."""

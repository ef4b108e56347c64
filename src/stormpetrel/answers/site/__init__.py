"""The site itself: reading into it, training, models, tokens, upkeep, and how it is."""

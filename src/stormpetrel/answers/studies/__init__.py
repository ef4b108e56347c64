"""Studies of recorded logs, counts and campaigns; they need no site."""

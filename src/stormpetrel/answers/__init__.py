"""One function and one frozen model per question: (site, viewer, question) -> answer; and one per act."""

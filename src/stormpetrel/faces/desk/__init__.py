"""The desk: what all faces ask. Each question is one function of a site and of who is asking."""

"""The faces: command line, later API, dashboard and notebook. Thin: they ask the rooms and show what they say."""

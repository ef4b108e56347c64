"""The web server: who is asking, what protects the pages, and how they are served. Imports fastapi; import it lazily."""

"""The API: HTTP for other programs, under /api/v1. Imports fastapi; import it lazily."""

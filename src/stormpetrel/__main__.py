"""`python -m stormpetrel` is the command line."""

from stormpetrel.faces.cli.main import main

main()

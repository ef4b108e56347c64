"""The frozen models of questions, answers and acts: sent by the API, read by the client, printed by `--json`."""

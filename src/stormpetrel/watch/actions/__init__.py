"""Acting behind a safety catch: decide, note, do, and keep the ledger."""

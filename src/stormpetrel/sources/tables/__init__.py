"""Tables in files: CSV, NDJSON and Parquet with columns that are mapped or recognised."""

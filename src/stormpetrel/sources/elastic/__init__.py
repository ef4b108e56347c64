"""Elasticsearch and OpenSearch: job events counted by the server or from raw documents."""

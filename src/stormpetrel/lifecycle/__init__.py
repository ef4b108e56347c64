"""The life of models: trained on what the site has, entered in its registry, loaded where they are needed."""

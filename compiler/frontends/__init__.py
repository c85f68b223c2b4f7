"""From a checkpoint's config.json to a manifest; one module an architecture family."""

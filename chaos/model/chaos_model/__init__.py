"""The model that chaos calls."""

"""How pages, examples and public names are tested: what is shown to a reader runs."""

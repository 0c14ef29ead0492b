"""The documentation site: pages of the repository and generated ones go in, HTML comes out."""

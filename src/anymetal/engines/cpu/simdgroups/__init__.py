"""The fast engine: whole simdgroups as vectors, masked only where lanes part."""

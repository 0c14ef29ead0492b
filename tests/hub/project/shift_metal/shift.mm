// The host's part, which a Mac compiles.

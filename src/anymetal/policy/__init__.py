"""Launch policies: the file, the choice, the tuning."""

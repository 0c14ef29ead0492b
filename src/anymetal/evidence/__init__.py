"""Evidence about the operators: are they right, how fast are they, how are they best launched."""

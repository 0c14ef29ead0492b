"""Write a Metal kernel for PyTorch once; run it, check it, tune it and ship it from any machine."""

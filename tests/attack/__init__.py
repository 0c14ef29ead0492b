"""Hostile sources, planted defects, correct kernels, damaged caches, endurance: see README.md."""

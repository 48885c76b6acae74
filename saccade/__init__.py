"""Saccade: train attention models on your own data, run them fast on your own machine, and look inside."""

__version__ = "0.1.0"

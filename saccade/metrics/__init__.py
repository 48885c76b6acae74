"""Scores: pure functions of answers and references."""

"""The recipe that the tests of this folder change."""

RECIPE = """\
description: Reads one language and writes another.
task: translation
data:
  train: train.txt
model:
  name: seq2seq
  hidden: 32
train:
  rate: 1e-4
"""

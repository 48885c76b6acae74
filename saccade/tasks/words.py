"""The words of a written answer, each with its probability."""

import math

from saccade.data.text.tokenizer import EOS, Tokenizer
from saccade.decoding import Hypothesis
from saccade.views.view import Word

END, BEGIN = "<end>", "<begin>"


def words_of(tokenizer: Tokenizer, hypothesis: Hypothesis) -> tuple[Word, ...]:
    """Every word with the product of its pieces' probabilities, the end included where it was reached."""
    tokens = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
    words = [END if word == "<eos>" else word for word in tokenizer.words(tokens)]
    log_probs = [0.0] * len(words)
    for group, value in zip(tokenizer.word_groups(tokens), hypothesis.token_log_probs or (), strict=False):
        log_probs[group] += value
    return tuple(Word(word, math.exp(value)) for word, value in zip(words, log_probs, strict=True))

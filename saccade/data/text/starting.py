"""The vocabulary of the run that a recipe starts from (`start.from`): weights of another run mean nothing without it."""

from collections.abc import Callable

from saccade.config.recipe import StartConfig
from saccade.data.text.tokenizer import Kind, Vocabularies
from saccade.errors import ConfigError


def vocabularies_of(
    start: StartConfig | None, kind: Kind, lowercase: bool, joint: bool, say: Callable[[str], None]
) -> Vocabularies | None:
    """The vocabularies to use instead of learning some; None where the recipe starts from no run, or from one without words.

    They must be of the kind that the recipe asks for.
    """
    run = None if start is None else start.run
    if run is None or not (run / "config.yaml").exists() or not (run / "tokenizer.json").exists():
        return None
    vocabularies = Vocabularies.load(run / "tokenizer.json")
    source = vocabularies.source
    for setting, theirs, ours in (
        ("tokenizer", source.kind, kind),
        ("lowercase", source.lowercase, lowercase),
        ("joint", vocabularies.joint, joint),
    ):
        if theirs != ours:
            words = str(theirs).lower() if isinstance(theirs, bool) else theirs
            raise ConfigError(
                f"start.from = {run} has a vocabulary with data.{setting} {words}, which this recipe's differs from: "
                f"set data.{setting}={words}, or start from another run"
            )
    sizes = (
        f"{len(source):,} tokens" if vocabularies.joint else f"{len(source):,} and {len(vocabularies.target):,} tokens"
    )
    say(f"vocabulary taken from {run}: {sizes}")
    return vocabularies

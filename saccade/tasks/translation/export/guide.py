"""What every exported model brings along, so that it can be used without Saccade: its tokenizer, a README.txt, and facts as JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.data.text.tokenizer import BOS, EOS, PAD, SPECIAL, Kind

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask

_JOINED: dict[Kind, str] = {  # text from the target's `pieces`, in the README's program
    "bpe": "tokenizers.decoders.ByteLevel().decode(pieces).strip()",
    "words": '" ".join(pieces)',
    "characters": '"".join(pieces)',
}


def write_guide(task: "TranslationTask", directory: Path, readme: str, facts: dict[str, Any]) -> None:
    """`readme` is a template; it may ask for all that is in `values` below."""
    vocabularies, decode = task.vocabularies, task.recipe.decode
    longest = {"longest_source": task.recipe.data.max_length, "longest_target": decode.max_length}
    values = {"beam": decode.beam, "joined": _JOINED[vocabularies.target.kind], **longest}
    values |= {"bos": BOS, "eos": EOS, "pad": SPECIAL[PAD]}
    vocabularies.save(directory / "tokenizer.json")
    (directory / "README.txt").write_text(readme.format(**values), encoding="utf-8")
    facts = facts | longest | {"tokenizer": vocabularies.source.kind, "lowercase": vocabularies.source.lowercase}
    (directory / "saccade.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

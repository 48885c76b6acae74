"""The one tokenizer of a run that reads texts, in its tokenizer.json: a `Tokenizer` of ours, or the existing one of another model."""

import json
from collections.abc import Callable
from pathlib import Path

from saccade.config.recipe import StartConfig
from saccade.data.text.existing import ExistingTokenizer
from saccade.data.text.spelling import Spelled
from saccade.data.text.tokenizer import Tokenizer
from saccade.errors import ConfigError, UserError
from saccade.files import read_text, write_text

FILE = "tokenizer.json"


def save_tokenizer(tokenizer: Spelled, directory: Path) -> None:
    content = {"version": 1, "text": json.loads(tokenizer.to_json())}
    write_text(directory / FILE, json.dumps(content, ensure_ascii=False))


def load_tokenizer(directory: Path) -> Spelled:
    path = directory / FILE
    try:
        content = json.loads(read_text(path))
        if content["version"] != 1:
            raise ValueError(f"version {content['version']}")
        written = json.dumps(content["text"])
        kind = ExistingTokenizer if content["text"]["kind"] == ExistingTokenizer.kind else Tokenizer
        return kind.from_json(written)
    except OSError as error:
        raise UserError(f"the vocabulary {path} cannot be read ({error.strerror}): copy the run again, whole") from None
    except Exception as error:  # the engine raises bare Exceptions for what it cannot parse
        why = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise UserError(
            f"{path} is not the vocabulary of a run that reads texts ({why}): copy the run again, whole"
        ) from None


def starting_tokenizer(start: StartConfig, say: Callable[[str], None]) -> Spelled | None:
    """That of the run or of the folder in Hugging Face's format that a recipe starts from: its weights mean nothing without it. None where
    the recipe starts from nothing."""
    return None if start.run is None else existing_tokenizer(start.run, say, "start.from")


def existing_tokenizer(directory: Path, say: Callable[[str], None], setting: str = "data.vocabulary") -> Spelled:
    """That of a run or of a folder in Hugging Face's format, which the setting names."""
    if (directory / "config.yaml").exists():
        if not (directory / FILE).exists():
            raise ConfigError(f"{setting} = {directory} is a run without a vocabulary: name one that reads texts")
        tokenizer = load_tokenizer(directory)
    else:
        tokenizer = ExistingTokenizer.from_folder(directory)
    say(f"vocabulary taken from {directory}: {len(tokenizer):,} tokens ({tokenizer.kind})")
    return tokenizer

"""What was given to a run: sentences, images, folders of images, and what is none of them."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saccade.errors import ConfigError, UserError

_NAMED = 10  # lines that are left empty, and unknown words, are named one by one up to here


def with_images_of_folders(run: Any, inputs: list[str]) -> tuple[list[str], bool]:
    """The inputs with all images of a folder in its place, and whether there was one, whose images nobody has listed; with a word on files
    that are none. A sentence is never a folder."""
    if run.recipe.task == "translation" or not any(map(os.path.isdir, inputs)):
        return inputs, False
    from saccade.data.images.store import open_store

    images: list[str] = []
    for given in inputs:
        if not os.path.isdir(given):
            images.append(given)
            continue
        store = open_store(Path(given))
        images += [os.path.join(given, name) for name in store.names]
        if store.ignored:
            print(f"{given} holds {store.ignored:,} other files, which were not read", file=sys.stderr)
    return images, True


def readable(run: Any, names: list[str], examples: list[Any]) -> tuple[list[str], list[Any]]:
    """The images that can be read, and a word on the others."""
    from saccade.data.images.decoding import BadImage

    good, bad = [], []
    for name, example in zip(names, examples, strict=True):
        if name is example and not os.path.lexists(name):
            shown = name or "a blank line"
            raise UserError(f"{shown} is no image: check the path; --skip-bad is for those that cannot be decoded")
        try:
            run.task.picture(example)
            good.append((name, example))
        except BadImage as error:
            bad.append(str(error))
    if not good:
        raise UserError(f"none of the {len(names):,} images can be read: {bad[0]}" if bad else "no image was given")
    if bad:
        print(f"left out {len(bad):,} of {len(names):,} images:", *bad, sep="\n  ", file=sys.stderr)
    return [name for name, _ in good], [example for _, example in good]


def short_enough(run: Any, sentences: list[str], torn: dict[int, str]) -> list[str]:
    """The sentences, with nothing in the place of those that are too long for the model, and a word on these and on the `torn` ones."""
    bad = torn | run.task.too_long(sentences)
    if not bad:
        return sentences
    shown = [bad[row] for row in sorted(bad)]
    if len(bad) == len(sentences):
        raise UserError(f"none of the {len(bad):,} lines can be translated: {shown[0]}")
    more = [f"and {len(bad) - _NAMED:,} more"] if len(bad) > _NAMED else []
    print(f"left {len(bad):,} of {len(sentences):,} lines empty:", *shown[:_NAMED], *more, sep="\n  ", file=sys.stderr)
    return ["" if row in bad else sentence for row, sentence in enumerate(sentences)]


def tell_unknown_words(run: Any, sentences: Sequence[Any]) -> None:
    """A model that knows whole words, or characters, reads all others as one: then its answer may have nothing to do with them."""
    if run.recipe.task != "translation" or run.task.vocabularies.source.kind == "bpe":
        return
    from saccade.data.text.tokenizer import UNK

    vocabulary = run.task.vocabularies.source
    unknown: dict[str, None] = {}
    texts = [sentence for sentence in sentences if isinstance(sentence, str)]
    for text, tokens in zip(texts, vocabulary.encode_batch(texts), strict=True):
        if UNK in tokens:
            spelled = zip(vocabulary.spellings(text), tokens, strict=True)
            unknown |= dict.fromkeys(word for word, token in spelled if token == UNK)
    if unknown:
        shown = [word if word.isprintable() and word.strip() else repr(word) for word in list(unknown)[:_NAMED]]
        more = [f"and {len(unknown) - _NAMED:,} more"] if len(unknown) > _NAMED else []
        print(f"not seen in training, so all read as <unk>: {', '.join([*shown, *more])}", file=sys.stderr)


def with_a_way_round(error: UserError, inputs: int) -> UserError:
    """A bad image or sentence among others can be left out; an image that is not there was meant to be another."""
    from saccade.data.images.decoding import BadImage, NoImage
    from saccade.tasks.translation.task import TooLong

    if inputs > 1 and isinstance(error, BadImage) and not isinstance(error, NoImage):
        return UserError(f"{error}; --skip-bad leaves such images out")
    if inputs > 1 and isinstance(error, TooLong):
        return UserError(f"{error}, or leave its line empty by --skip-bad")
    return error


def require_pictures(run: Any, inputs: list[str]) -> None:
    """What training takes, a zip or a table of many images, is no picture."""
    if run.recipe.task == "translation":
        return
    for given in inputs:
        if Path(given).suffix.lower() in (".zip", ".csv") and os.path.isfile(given):
            instead = f", or judge by it with `saccade evaluate {run.path} --data {given}`"
            raise UserError(
                f"{given} is no picture, and predict takes pictures and folders of them: unpack it and give the folder"
                + (instead if run.recipe.task == "image_classes" else "")
            )


def require_a_search(run: Any, options: dict[str, Any]) -> None:
    """Options of a search, by their names in Python, are for runs that search."""
    if options and not hasattr(run.recipe, "decode"):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise ConfigError(
            f"{run.path} is a run of the task {run.recipe.task}, which searches nothing: leave out {names}"
        )


def require_no_file_of_sentences(run: Any, inputs: list[str], instead: str) -> None:
    """A file's name is no sentence, though it could be translated as one."""
    if run.recipe.task == "translation":
        from saccade.data.images.decoding import ENDINGS

        for given in inputs:
            if os.path.isfile(given):
                if Path(given).suffix.lower() in ENDINGS:
                    raise UserError(
                        f"{given} is an image, and {run.path} translates sentences: give it some, or another run"
                    )
                raise UserError(
                    f"{given} is a file and a sentence is wanted: to translate its lines, run `{instead}{given}`"
                )

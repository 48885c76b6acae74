"""Commands that ask a trained run: predict, score."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from saccade.cli.app import RUNS, app
from saccade.cli.inputs import (
    readable,
    require_a_search,
    require_no_file_of_sentences,
    require_pictures,
    short_enough,
    tell_unknown_words,
    with_a_way_round,
    with_images_of_folders,
)
from saccade.cli.options import (
    BeamOption,
    CoverageOption,
    JsonOption,
    LengthOption,
    RunArgument,
    SearchOption,
    SkipBadInputsOption,
    given,
    search_settings,
)
from saccade.cli.printing import print_json, with_progress
from saccade.errors import UserError


@app.command(rich_help_panel=RUNS)
def predict(
    run: RunArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...",
            help="Sentences, image files or folders of them, or test:0 for the run's own first test example; lines of stdin unless given.",
            show_default=False,
        ),
    ] = None,
    search: SearchOption = None,
    beam: BeamOption = None,
    best: Annotated[int, typer.Option(min=1, help="How many answers, a line each, for each input.")] = 1,
    length_penalty: LengthOption = None,
    coverage_penalty: CoverageOption = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling: below 1 is surer, above 1 bolder.", show_default=False)
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Sampling: from the k likeliest words only.", show_default=False)
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sampling: from the likeliest words that hold this share.", show_default=False),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Sampling: another seed, other samples.", show_default=False)] = None,
    engine: Annotated[
        Literal["torch", "ctranslate2"],
        typer.Option(help="What computes; ctranslate2 is exported on first use (int8) and several times faster."),
    ] = "torch",
    prefix: Annotated[
        str | None, typer.Option(help="How every translation or caption must begin.", show_default=False)
    ] = None,
    skip_bad: SkipBadInputsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Translate sentences, name or describe what is in pictures: a line in, a line out."""
    import saccade as library
    from saccade.data.text.lines import decoded_lines
    from saccade.tasks.held_out import example_or_itself

    if not inputs and sys.stdin.isatty():
        print("type what to predict, a line each, and end with Ctrl-D", file=sys.stderr)
    torn: dict[int, str] | None = {} if skip_bad else None  # what is said of rows that are no text
    lines = inputs or [line.rstrip("\r") for line in decoded_lines(sys.stdin.buffer, "standard input", torn)]
    beaming = {"beam": beam, "length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    settings = search_settings(search, best, beam=beaming, sample=sampling)
    loaded = library.load(run)
    require_a_search(loaded, given(search=search, **beaming, **sampling, prefix=prefix))
    require_pictures(loaded, lines)
    lines, is_named = with_images_of_folders(loaded, lines)
    if inputs:
        require_no_file_of_sentences(loaded, inputs, f"saccade predict {run} < ")
    examples = [example_or_itself(loaded.task, line) for line in lines] if inputs else lines
    translates = loaded.recipe.task == "translation"
    if skip_bad and translates:
        examples = short_enough(loaded, examples, torn or {})
    elif torn:
        raise UserError(f"{next(iter(torn.values()))}; save the file as UTF-8.")
    elif skip_bad:
        lines, examples = readable(loaded, lines, examples)
        is_named = True  # as an answer may be missing
    tell_unknown_words(loaded, examples)
    if prefix is not None:
        settings["prefixes"] = [prefix] * len(examples)
    predictor: Any = loaded
    if engine == "ctranslate2":
        from saccade.export.engine import CTranslate2Engine

        predictor = CTranslate2Engine(loaded)
    try:
        answers: Iterable[Any] = predictor.answers(examples, best=best, **settings)
        answers = with_progress(answers, len(examples), printed_meanwhile=translates and not as_json)
        if not translates:
            answers = list(answers)  # an image may still turn out to be none: then nothing is printed
    except UserError as error:
        raise with_a_way_round(error, len(examples)) from None
    if as_json:
        print_json([answer.to_dict() for answer in answers])
        return
    for path, answer in zip(lines, answers, strict=True):
        found = answer.lines()
        if is_named:
            found = [f"{path}\t{line}" for line in found]
        missing = 0 if loaded.recipe.task == "image_classes" else best - len(found)
        for line in [*found, *[""] * missing]:  # as many lines for each input, so that they can be told apart
            print(line)


@app.command(rich_help_panel=RUNS)
def score(
    run: RunArgument,
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Source sentences, or both sides (TSV, JSON lines).", show_default=False),
    ],
    target: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Their translations, line by line.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how probable given translations are: log P(target | source), a line each."""
    import saccade as library
    from saccade.data.text.pairs import as_line, every_pair

    loaded = library.load(run)
    pairs = every_pair(source, target)
    scored = loaded.score(pairs)
    if as_json:
        rows = zip(pairs, scored, strict=True)
        print_json(
            [{"source": s, "target": t, "log_prob": h.log_prob, "tokens": len(h.tokens) + 1} for (s, t), h in rows]
        )
        return
    for (s, t), hypothesis in zip(pairs, scored, strict=True):
        print(f"{hypothesis.log_prob:.4f}\t{as_line(s)}\t{as_line(t)}")

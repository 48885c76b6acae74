"""Commands about a trained run: evaluate, look, export, serve."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from saccade.cli.app import RUNS, app
from saccade.cli.inputs import require_a_search, require_no_file_of_sentences, tell_unknown_words
from saccade.cli.options import (
    BeamOption,
    CoverageOption,
    JsonOption,
    LengthOption,
    RunArgument,
    SearchOption,
    SkipBadOption,
    given,
    search_settings,
)
from saccade.cli.printing import elapsing, print_columns, print_json
from saccade.errors import ConfigError, UserError

if TYPE_CHECKING:
    from saccade.metrics.classes import ClassScores


@app.command(rich_help_panel=RUNS)
def evaluate(
    run: RunArgument,
    split: Annotated[Literal["valid", "test"], typer.Option(help="Which held-out examples.")] = "test",
    search: SearchOption = None,
    beam: BeamOption = None,
    length_penalty: LengthOption = None,
    coverage_penalty: CoverageOption = None,
    confusion: Annotated[
        Path | None,
        typer.Option(help="Classes: also draw who is taken for whom, as .png or .svg.", show_default=False),
    ] = None,
    mistakes: Annotated[
        Path | None,
        typer.Option(
            help="Classes: also list every image that is taken for another class, the surest mistake first, as tab-separated text.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Glimpses: the mean of so many drawn paths (2 or more) instead of the likeliest.",
            min=2,
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Classes: other images instead, a folder of classes, a zip of one, a CSV or idx files.",
            show_default=False,
        ),
    ] = None,
    skip_bad: SkipBadOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a run on examples it has not seen."""
    import saccade as library
    from saccade.views.confusion import require_picture

    if data is not None and split == "valid":
        raise ConfigError("--data names other images and --split the run's own: leave one of them out")
    if skip_bad and data is None:
        raise ConfigError("--skip-bad is for the images of --data: the run's own were all read when it was trained")
    settings = search_settings(
        search, beam={"beam": beam, "length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
    )
    searching = given(search=search, beam=beam, length_penalty=length_penalty, coverage_penalty=coverage_penalty)
    settings |= given(samples=samples, data=data, skip_bad=skip_bad or None)
    loaded = library.load(run)
    require_a_search(loaded, searching)
    for option, path in (("--confusion", confusion), ("--mistakes", mistakes)):
        if path is not None and loaded.recipe.task != "image_classes":
            raise ConfigError(f"{option} is for runs that tell classes apart, and {run} does not: leave {option} out")
    if confusion is not None:
        require_picture(confusion)
    with elapsing(f"judging by the examples of {data or f'the {split} set'}"):
        scores: Any = loaded.evaluate(split, **settings)
    if as_json:
        print_json(scores.to_dict())
    else:
        measures, values = zip(*scores.rows(), strict=True)
        print_columns([("measure", list(measures)), ("value", list(values))])
        print_columns(scores.columns())
    if confusion is not None:
        _draw_confusion(scores, confusion)
    if mistakes is not None:
        _list_mistakes(scores, mistakes)


@app.command(rich_help_panel=RUNS)
def look(
    run: RunArgument,
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A sentence, the path of an image, or test:0 for the run's own first test example.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write: .png, .svg, .pdf, .html or .json.")] = Path(
        "attention.png"
    ),
    target: Annotated[
        str | None, typer.Option(help="A given translation or caption instead of the model's own.", show_default=False)
    ] = None,
    pixel: Annotated[
        str | None,
        typer.Option(metavar="ROW,COLUMN", help="Pictures: where this pixel looks.", show_default=False),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Modules to show with all of their heads, by pattern, e.g. 'decoder.*cross*'; '*' is all. "
            "Unless given, a picture of very many shows an overview.",
            show_default=False,
        ),
    ] = None,
    subwords: Annotated[
        bool, typer.Option("--subwords", help="Show the model's tokens instead of whole words.")
    ] = False,
) -> None:
    """Draw what each word looked at, or where in a picture the model looked."""
    import saccade as library
    from saccade.runs.looking import looked
    from saccade.tasks.held_out import example_or_itself, truth_of
    from saccade.views.document import PICTURES
    from saccade.views.lettering import letters_without_font

    at = None if pixel is None else _pixel(pixel)
    loaded = library.load(run)
    require_no_file_of_sentences(loaded, [source], f"saccade predict {run} < ")
    example, truth = example_or_itself(loaded.task, source), truth_of(loaded.task, source)
    tell_unknown_words(loaded, [example])
    called = {} if truth is None else {"name": source, "truth": truth}
    view = looked(loaded.task, example, target=target, words=not subwords, pixel=at, only=only, **called)
    with letters_without_font() as letters:
        view.save(out)
    typer.echo(f"{source}: {view.text}" + ("" if truth is None else f"; reference: {truth}"), err=True)
    if view.hint and out.suffix.lower() in PICTURES:
        typer.echo(f"{out} {view.hint}", err=True)
    _say_boxes(letters, out, f"--out {out.with_suffix('.html')} shows them, or ")
    print(out)


@app.command(rich_help_panel=RUNS)
def export(
    run: RunArgument,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.", show_default=False)],
    to: Annotated[Literal["ctranslate2", "onnx"], typer.Option(help="Which engine.", show_default=False)],
    quantization: Annotated[
        str | None, typer.Option(help="CTranslate2: int8, int16, float16, ...", show_default=False)
    ] = None,
) -> None:
    """Write a run for another engine, checked against torch before it is kept."""
    import saccade as library

    if to == "ctranslate2":
        from saccade.export.to_ctranslate2 import export_ctranslate2

        print(export_ctranslate2(library.load(run), directory, quantization))
        return
    if quantization is not None:
        raise UserError("--quantization is for --to ctranslate2: leave it out")
    from saccade.export.to_onnx import export_onnx

    print(export_onnx(library.load(run), directory))


@app.command(rich_help_panel=RUNS)
def serve(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Directories that `saccade train` wrote, or image classifiers in Hugging Face's format.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option(help="Where to listen; others than this machine need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(help="Callers must know this.", envvar="SACCADE_TOKEN", show_default=False)
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Let everybody in who can reach the host.")] = False,
) -> None:
    """Open a page and an API for runs: type or drop something, see what it attends to."""
    from saccade.serve.server import serve as open_server

    open_server(runs, host=host, port=port, token=token, public=public)


def _say_boxes(letters: set[str], path: Path, instead: str = "") -> None:
    """A word on letters that could not be drawn, if there are any."""
    if not letters:
        return
    named = [letter if letter.isprintable() else f"U+{ord(letter):04X}" for letter in sorted(letters)]
    shown = " ".join(named[:5]) + (f" and {len(letters) - 5} more" if len(letters) > 5 else "")
    typer.echo(
        f"no font here has {shown}: boxes stand for them in {path}; {instead}install a font that has them", err=True
    )


def _draw_confusion(scores: "ClassScores", path: Path) -> None:
    from saccade.views.confusion import save
    from saccade.views.lettering import letters_without_font

    with letters_without_font() as letters:
        save(scores.confusion, scores.classes, path)
    typer.echo(f"confusion matrix: {path}", err=True)
    _say_boxes(letters, path)


def _list_mistakes(scores: "ClassScores", path: Path) -> None:
    from saccade.files import write_text

    write_text(path, "\n".join([*scores.mistake_lines(), ""]))
    typer.echo(f"mistakes: {path}", err=True)


def _pixel(text: str) -> tuple[int, int]:
    numbers = re.fullmatch(r"\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*", text)
    if numbers is None:
        raise ConfigError(f"--pixel {text!r} must be ROW,COLUMN, for example --pixel 12,20")
    return int(numbers[1]), int(numbers[2])

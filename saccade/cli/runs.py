"""Commands about a trained run: predict, score, evaluate, look, export, serve. None of them knows a task: options come from the run."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from saccade.cli.app import RUNS, app
from saccade.cli.options import JsonOption, RunArgument, SkipBadInputsOption
from saccade.cli.printing import print_columns, print_json, with_progress
from saccade.cli.signature import with_parameters
from saccade.errors import ConfigError, UserError
from saccade.printable import visible
from saccade.waiting import elapsing

if TYPE_CHECKING:
    from saccade.config.options import Command, Options
    from saccade.runs.run import Run
    from saccade.tasks.task import Answer, Example


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
    skip_bad: SkipBadInputsOption = False,
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """Answer inputs: a line in, a line out. `saccade predict RUN --help` lists what this run takes."""
    import saccade as library

    if not inputs and sys.stdin.isatty() and not _has_input(run, options):
        print("type what to predict, a line each, and end with Ctrl-D", file=sys.stderr)
    loaded = library.load(run)
    chosen = loaded.options("predict", options, "--{}")
    examples = _examples(loaded, inputs or [], skip_bad, f"saccade predict {run}", chosen)
    # What has names is files: one of them may turn out to be unreadable, and then nothing is printed.
    is_named = any(example.name for example in examples)
    for note in loaded.task.notes(examples, chosen):
        _note(note)
    parts = loaded.task.parts(examples[0], chosen) if len(examples) == 1 and not as_json else None
    if parts is not None:
        for part in parts:
            print(part, end="", flush=True)
        print()
        return
    shows_names = is_named and (len(examples) > 1 or skip_bad or [example.name for example in examples] != inputs)
    try:
        answers: Iterable[Answer] = loaded.task.answers(examples, chosen)
        answers = with_progress(answers, len(examples), printed_meanwhile=not is_named and not as_json)
        answers = list(answers) if is_named else answers
    except UserError as error:
        raise _with_a_way_round(error, len(examples)) from None
    if as_json:
        print_json([answer.to_dict() for answer in answers])
        return
    for example, answer in zip(examples, answers, strict=True):
        for line in answer.lines():
            print(visible(f"{example.name or example.content}\t{line}" if shows_names else line))


def _has_input(run: Path, options: Mapping[str, Any]) -> bool:
    """Whether an option of the run says what to read."""
    from saccade.cli.derived import options_of
    from saccade.config.options import extra_of

    fields = options_of(run).model_fields if options else {}
    return any(extra_of(fields[name], "is_input") for name in options if name in fields)


def _examples(
    run: "Run", words: Sequence[str], skip_bad: bool, command: str, options: "Options"
) -> "list[Example[Any]]":
    """Held-out examples by their names; everything else is read as the task reads it."""
    from saccade.tasks.task import Typed

    say: Callable[[str], None] = _note
    if not words:
        return run.task.input.from_command_line(Typed((), sys.stdin.buffer, skip_bad, say, command, options))
    examples: list[Example[Any]] = []
    for named, group in groupby(words, key=lambda word: run.held_out(word) is not None):
        if named:
            examples += [example for word in group if (example := run.held_out(word)) is not None]
        else:
            examples += run.task.input.from_command_line(Typed(list(group), None, skip_bad, say, command, options))
    return examples


def _note(sentence: str) -> None:
    print(visible(sentence), file=sys.stderr)


def _with_a_way_round(error: UserError, inputs: int) -> UserError:
    """A bad image among others can be left out; one that does not exist was meant to be another."""
    from saccade.data.images.decoding import BadImage, NoImage

    if inputs > 1 and isinstance(error, BadImage) and not isinstance(error, NoImage):
        return UserError(f"{error}; --skip-bad leaves such images out")
    return error


def score(
    run: RunArgument,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Given outputs, such as sources and translations.", show_default=False),
    ],
    as_json: JsonOption = False,
) -> None:
    """Say how probable given outputs are: their log-probability, a line each."""
    import saccade as library
    from saccade.data.text.pairs import as_line

    loaded = library.load(run)
    scorer = loaded.task.scorer()
    if scorer is None:
        raise UserError(f"{run} is a run of the task {loaded.recipe.task}, which does not score given outputs")
    outputs = scorer.score(scorer.read(files))
    if as_json:
        print_json([output.to_dict() for output in outputs])
        return
    for output in outputs:
        print("\t".join([f"{output.log_prob:.4f}", *map(as_line, output.texts.values())]))


def evaluate(
    run: RunArgument,
    split: Annotated[Literal["valid", "test"], typer.Option(help="Which held-out examples.")] = "test",
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """Measure a run on examples it has not seen. `saccade evaluate RUN --help` lists what this run takes."""
    import saccade as library

    if options.get("data") is not None and split == "valid":
        raise ConfigError("--data names other examples and --split the run's own: leave one of them out")
    loaded = library.load(run)
    chosen = loaded.options("evaluate", options, "--{}")
    with elapsing(f"evaluating on the examples of {options.get('data') or f'the {split} set'}"), _boxes_told():
        scores = loaded.task.evaluate(split, chosen)
    if as_json:
        print_json(scores.to_dict())
        return
    measures, values = zip(*scores.rows(), strict=True)
    print_columns([("measure", list(measures)), ("value", list(values))])
    if columns := scores.columns():
        print_columns(columns)


def look(
    run: RunArgument,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="A sentence, the path of an image, or test:0 for the run's own first test example.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write: .png, .svg, .pdf, .html or .json.")] = Path(
        "attention.png"
    ),
    **options: Any,
) -> None:
    """Draw what the model attended to. `saccade look RUN --help` lists what this run takes."""
    import saccade as library
    from saccade.views.document import PICTURES, require_ending

    require_ending(out)
    if source is None and not _has_input(run, options):
        raise ConfigError("look needs an INPUT: name one, such as test:0 for the run's own first test example")
    loaded = library.load(run)
    chosen = loaded.options("look", options, "--{}")
    examples = _examples(loaded, [] if source is None else [source], False, f"saccade predict {run}", chosen)
    if len(examples) != 1:
        raise UserError(f"{source or 'what was given'} holds {len(examples)} inputs: look at one of them")
    view = loaded.task.look(examples[0], chosen)
    source = source or view.title
    with _boxes_told(out):
        view.save(out)
    facts = [view.text] if view.text else []
    facts += [] if view.truth is None else [f"reference: {view.truth}"]
    if facts:
        _note(f"{source}: {'; '.join(facts)}")
    if view.hint and out.suffix.lower() in PICTURES:
        _note(f"{out} {view.hint}")
    print(out)


class _boxes_told:  # noqa: N801 (used as a context manager)
    """Says which letters of a picture no font here has, if there are any."""

    def __init__(self, path: Path | None = None):
        self.path = path

    def __enter__(self) -> None:
        from saccade.views.lettering import letters_without_font

        self._watching = letters_without_font()
        self._letters = self._watching.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._watching.__exit__(*error)
        if not self._letters:
            return
        named = [letter if letter.isprintable() else f"U+{ord(letter):04X}" for letter in sorted(self._letters)]
        shown = " ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        instead = "" if self.path is None else f"--out {self.path.with_suffix('.html')} shows them, or "
        where = "" if self.path is None else f" in {self.path}"
        _note(f"no font here has {shown}: boxes stand for them{where}; {instead}install a font that has them")


def export(
    run: RunArgument,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.", show_default=False)],
    to: Annotated[str, typer.Option(help="Which engine, such as onnx or ctranslate2.", show_default=False)],
    quantization: Annotated[
        str | None, typer.Option(help="CTranslate2: int8, int16, float16, ...", show_default=False)
    ] = None,
) -> None:
    """Write a run for another engine, checked against torch before it is kept."""
    import saccade as library
    from saccade.export import export as write

    print(write(library.load(run), directory, to, {} if quantization is None else {"quantization": quantization}))


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


def register(words: Sequence[str]) -> None:
    """Adds the commands to the program, with the options of the run that the words of the command line name."""
    asked_of_a_run: dict[Command, Callable[..., None]] = {"predict": predict, "evaluate": evaluate, "look": look}
    commands: dict[str, Callable[..., None]] = {
        "predict": predict,
        "score": score,
        "evaluate": evaluate,
        "look": look,
        "export": export,
        "serve": serve,
    }
    for name, command in asked_of_a_run.items():
        commands[name] = with_parameters(command, {}, lambda _, value: value)
        if words[:1] == [name]:
            commands[name] = _of_this_run(command, name, words[1:]) or commands[name]
    app.registered_commands = [command for command in app.registered_commands if command.name not in commands]
    for title, function in commands.items():
        app.command(title, rich_help_panel=RUNS)(function)


def _of_this_run(command: Callable[..., None], name: "Command", words: Sequence[str]) -> Callable[..., None] | None:
    """The command with the options of the run that is among the words, if one is."""
    from saccade.cli.derived import options_of, require_known, run_named, with_options

    path = run_named(words)
    if path is None:
        if words and not words[0].startswith("-") and not {"-h", "--help"} & set(words):
            options_of(Path(words[0]))  # says what is wrong with it, before an option of no run is complained about
        return None
    options = options_of(path)
    require_known(words, name, command, path, options)
    return with_options(command, name, options)

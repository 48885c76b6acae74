"""Commands that take a recipe: demo, recipes, check, train, compare."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from saccade.cli.app import RECIPES, START, app
from saccade.cli.options import JsonOption, RecipeArgument, SetOption, SkipBadOption, recipe_names
from saccade.cli.printing import print_columns, print_json


@app.command(rich_help_panel=START)
def demo(
    out: Annotated[Path, typer.Option(help="Where the two runs and the pictures go.")] = Path("runs/demo"),
    minutes: Annotated[float, typer.Option(min=0.05, help="Minutes of training, at most.")] = 3.0,
) -> None:
    """Train on the built-in corpus with and without attention, translate, draw the alignment."""
    from saccade.demo import demo as show

    show(out, minutes)


@app.command("recipes", rich_help_panel=RECIPES)
def list_recipes() -> None:
    """List what can be trained, a line each."""
    from saccade.config.files import recipes

    if not sys.stdout.isatty():
        for name, description in recipes():
            print(f"{name}\t{description}")
        return

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid("name", "description", padding=(0, 3))
    for name, description in recipes():
        table.add_row(Text(name, style="bold"), Text(description))
    Console().print(table)


@app.command(rich_help_panel=RECIPES)
def check(recipe: RecipeArgument, changes: SetOption) -> None:
    """Check a recipe and print all of its settings, defaults too, with what each may be and what it is for."""
    from saccade.config import recipe as config
    from saccade.errors import ConfigError

    try:
        print(config.explained(config.load(recipe, changes)), end="")
    except ConfigError as error:
        try:
            unfinished = config.load(recipe, changes, complete=False)
        except ConfigError:
            raise error from None  # more is wrong than files that are still to be named
        print(config.explained(unfinished), end="")
        raise


@app.command(rich_help_panel=RECIPES)
def train(
    recipe: RecipeArgument,
    changes: SetOption,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the run; runs/RECIPE unless given.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume a run that was stopped; RECIPE may be its directory.")
    ] = False,
    skip_bad: SkipBadOption = False,
) -> None:
    """Train a recipe. With several processes: torchrun -m saccade train ..."""
    from saccade.runs.train import train as start
    from saccade.training.allocator import keep_freed_memory

    keep_freed_memory()
    print(start(recipe, [*changes, *(["data.skip_bad=true"] if skip_bad else [])], out, resume))


@app.command(rich_help_panel=RECIPES)
def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Names that `saccade recipes` lists, or paths of YAML files.",
            show_default=False,
            autocompletion=recipe_names,
        ),
    ],
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="PLACE=VALUE,...",
            help="Settings to compare, e.g. model.attention=none,dot; may be repeated. Of several train.seed the mean is shown, "
            "± half their range.",
            default_factory=list,
            show_default=False,
        ),
    ],
    changes: SetOption,
    out: Annotated[Path, typer.Option(help="Where the runs, the table and the plot go.")] = Path("runs/compare"),
    against: Annotated[
        str | None,
        typer.Option(
            metavar="COST",
            help="Plot the score against a cost: parameters, minutes; of images also MFLOP, 'training TFLOP'.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train recipes, or one with settings varied, every combination alike: a table and a plot."""
    from saccade.runs import compare as comparing
    from saccade.training.allocator import keep_freed_memory

    keep_freed_memory()
    rows = comparing.compare(recipes, vary, changes, out, against)
    comparing.save_table(rows, out / "compare.tsv")
    comparing.plot(rows, out / "compare.png", against)
    if as_json:
        print_json([vars(row) for row in rows])
    else:
        table = comparing.columns(rows)
        print_columns(table)
        if any(" ± " in cell for _, cells in table for cell in cells):
            typer.echo("± is half the range of the seeds", err=True)
    typer.echo(f"plot: {out / 'compare.png'}, table: {out / 'compare.tsv'}", err=True)

"""The program itself: what all of its commands hang on."""

from typing import Annotated

import typer

from saccade import __version__

START, RECIPES, RUNS = "Start here", "Recipes", "Trained runs"

app = typer.Typer(
    name="saccade",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: [bold]saccade train phrasebook-rnn --set train.minutes=3[/bold]",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"saccade {__version__}")
        raise typer.Exit


@app.callback()
def saccade(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train attention models on your own data, run them on your own machine, and look inside."""

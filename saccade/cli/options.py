"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer


def recipe_names(incomplete: str) -> list[tuple[str, str]]:
    """What the shell offers after TAB."""
    from saccade.config.files import recipes

    return [(name, description) for name, description in recipes() if name.startswith(incomplete)]


RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A name that `saccade recipes` lists, or the path of a YAML file.",
        show_default=False,
        autocompletion=recipe_names,
    ),
]
SetOption = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PLACE=VALUE",
        help="Change one setting, for example model.layers=4; may be repeated.",
        default_factory=list,
        show_default=False,
    ),
]
RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="The directory that `saccade train` wrote, or an image classifier in Hugging Face's format.",
        show_default=False,
    ),
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Images: leave out those that cannot be read, and count them.")
]
SkipBadInputsOption = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Leave out images that cannot be read, and leave empty the lines of sentences that are too long or no UTF-8; count them.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

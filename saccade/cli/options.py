"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from saccade.errors import ConfigError


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
SearchOption = Annotated[
    Literal["greedy", "beam", "sample"] | None,
    typer.Option(help="How to search; the recipe's way unless given.", show_default=False),
]
BeamOption = Annotated[int | None, typer.Option(min=1, help="Width of the beam.", show_default=False)]
LengthOption = Annotated[
    float | None, typer.Option(help="Beam: above 0 favours longer translations.", show_default=False)
]
CoverageOption = Annotated[
    float | None,
    typer.Option(help="Beam: above 0 favours translations that looked at every source word.", show_default=False),
]


def search_settings(search: str | None, best: int = 1, **by_kind: dict[str, float | None]) -> dict[str, Any]:
    """What somebody gave of how to search. Settings that only one kind of search has ask for it, and go with no other."""
    because = f"--search is {search}"
    settings: dict[str, Any] = {}
    for kind, values in by_kind.items():
        for name, value in given(**values).items():
            option = f"--{name.replace('_', '-')}"
            if search not in (None, kind):
                raise ConfigError(f"{option} is for --search {kind} and {because}: leave one of them out")
            search, because = kind, f"{option} is for {kind}"
            settings[name] = value
    if search == "greedy" and best > 1:
        raise ConfigError(f"--best is {best} and greedy search has one answer: leave --best or --search greedy out")
    return settings | given(search=search)


def given(**settings: Any) -> dict[str, Any]:
    """Those that have a value."""
    return {name: value for name, value in settings.items() if value is not None}

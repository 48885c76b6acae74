"""Which columns of a table hold the text, its label and, where there is one, what people marked in it: by name, else by content.

By content, the text is the column with the longest cells, and the label the one with the fewest different values, each of which occurs
several times.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from saccade.data.text.labelled.tables import Table
from saccade.errors import Say, UserError

TEXTS = (
    "text", "review", "sentence", "comment", "content", "body", "message", "tweet", "document", "doc", "question", "phrase",
    "review_text", "reviewtext", "utterance", "headline", "title", "description",
)  # fmt: skip
LABELS = (
    "label", "labels", "sentiment", "class", "category", "classification", "target", "polarity", "intent", "topic", "emotion",
    "rating", "stars", "score", "tag", "y",
)  # fmt: skip
RATIONALES = ("rationale", "rationales", "evidences", "evidence", "selected_text", "highlight", "highlights")
_MOST_LABELS = 500
_SOME = 2000  # rows that are looked at


@dataclass(frozen=True)
class Wanted:
    """What the recipe says; None where the columns are to be found."""

    text: str | None = None
    label: str | None = None
    rationale: str | None = None
    encoding: str = "utf-8"  # of text files


@dataclass(frozen=True)
class Columns:
    text: str
    label: str
    rationale: str | None


def find_columns(table: Table, wanted: Wanted, say: Say) -> tuple[Table, Columns]:
    """The table too, with its line of names taken off if it has one."""
    if table.may_be_nameless and _has_names(table, wanted):
        table = table.named()
        if not table.rows:
            raise UserError(f"{table.path} has a line of names and nothing below it: give a file with some texts")
    rationale = _named(table, "rationale", wanted.rationale, RATIONALES)
    text = _named(table, "text", wanted.text, TEXTS)
    label = _named(table, "label", wanted.label, LABELS)
    by_name = text, label
    text = text or _longest(table)
    if label is None:
        label = _fewest_values(table, [name for name in (text, rationale) if name])
    if label == text:
        raise UserError(
            f"{table.path}: the text and the label are the same column {text}: name others with data.text and data.label"
        )
    if by_name != (text, label):
        say(
            f"{table.path.name}: the texts are column {text}, the labels column {label} (data.text and data.label name others)"
        )
    return table, Columns(text, label, rationale)


def _has_names(table: Table, wanted: Wanted) -> bool:
    """Whether the first row is one of names: known ones, or ones that no other row has in the column of labels."""
    first = [str(cell).strip() for cell in table.rows[0]]
    asked = {name for name in (wanted.text, wanted.label, wanted.rationale) if name}
    if asked:
        return not asked <= set(table.columns) or bool(asked & set(first))
    if {name.lower() for name in first} & {*TEXTS, *LABELS} and len(set(first)) == len(first):
        return max(map(len, first)) <= 40
    below = Table(table.path, table.columns, table.rows[1:], table.places[1:])
    if not below.rows or len(table.columns) < 2:
        return False
    try:
        label = _fewest_values(below, [_longest(below)])
    except UserError:
        return False
    return str(table.column(label)[0]) not in {str(value) for value in below.column(label)}


def _named(table: Table, role: str, wanted: str | None, usual: Sequence[str]) -> str | None:
    if wanted is not None:
        if wanted in table.columns:
            return wanted
        near = difflib.get_close_matches(wanted, table.columns, n=1, cutoff=0.5)
        did_you = f"did you mean {near[0]}? " if near else ""
        raise UserError(f"{table.path} has no column {wanted} (data.{role}): {did_you}It has {_listed(table.columns)}")
    lowered = {name.lower().strip(): name for name in reversed(table.columns)}
    return next((lowered[name] for name in usual if name in lowered), None)


def _longest(table: Table) -> str:
    def length(name: str) -> float:
        cells = [len(cell) if isinstance(cell, str) else 0 for cell in table.column(name)[:_SOME]]
        return sum(cells) / max(len(cells), 1)

    return max(table.columns, key=length)


def _fewest_values(table: Table, others: Sequence[str]) -> str:
    found = dict[str, int]()
    for name in table.columns:
        values = {str(cell).strip() for cell in table.column(name)[:_SOME]}
        rows = min(len(table.rows), _SOME)
        if name not in others and 1 <= len(values) <= min(_MOST_LABELS, max(2, rows // 2)):
            found[name] = len(values)
    several = {name: count for name, count in found.items() if count > 1} or found
    if not several:
        names = f"it has {_listed(table.columns)}"
        near = difflib.get_close_matches("label", [name.lower() for name in table.columns], n=1, cutoff=0.5)
        hint = f"the nearest name is {near[0]}; " if near else ""
        raise UserError(
            f"{table.path}: no column holds labels, a few values that occur again and again: {hint}{names}; "
            "name it with --set data.label=COLUMN"
        )
    return min(several, key=several.__getitem__)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{shown}, …" if len(names) > 12 else shown

"""The tree of everything a beam search considered, with the step at which each branch was dropped.

    tree = SearchTree()
    beam_search(decoder, memory, begin, config, ..., observer=tree)
    tree.roots[0]                      # the first sentence: branches of branches

A dropped branch can be continued: force `tokens` as the prefix of a new search.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from saccade.decoding.beam import Considered, Paths

Fate = Literal["best", "result", "ended", "followed", "given up"]


@dataclass
class Branch:
    """One token after those of its parents. `fate`:

    best       on the way to the best hypothesis
    result     on the way to another hypothesis that was returned
    ended      an end that the beam accepted, but others were better
    followed   was in the beam after its step, until step `until`
    given up   was considered, and others were better
    """

    token: int
    log_prob: float  # of this token
    total: float  # of all tokens up to this one
    score: float  # the total after the penalties
    step: int  # tokens written, this one included
    fate: Fate = "given up"
    until: int = 0  # the last step after which it, or a descendant, was in the beam; 0: never
    rank: int | None = None  # of a hypothesis that was returned, counted from 0
    parent: "Branch | None" = None
    branches: list["Branch"] = field(default_factory=list)

    def path(self) -> list["Branch"]:
        """From the first token to this one."""
        path: list[Branch] = []
        branch: Branch | None = self
        while branch is not None and branch.step:
            path.append(branch)
            branch = branch.parent
        return path[::-1]

    @property
    def tokens(self) -> list[int]:
        return [branch.token for branch in self.path()]

    def everything(self) -> Iterator["Branch"]:
        """This branch and all below it, each before what it leads to."""
        waiting = [self]
        while waiting:
            branch = waiting.pop()
            yield branch
            waiting += reversed(branch.branches)


class SearchTree:
    """An observer of `beam_search`. Each of `roots`, one per sentence, stands for the begin token."""

    def __init__(self) -> None:
        self.roots: list[Branch] = []
        self._nodes: dict[int, Branch] = {}

    def considered(self, step: Considered) -> None:
        if not self.roots:
            self.roots = [Branch(-1, 0.0, 0.0, 0.0, 0) for _ in step.sentence]
        columns = (step.parent, step.node, step.token, step.token_log_prob, step.log_prob, step.score, step.ended)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for sentence, row in zip(step.sentence.tolist(), rows, strict=True):
            for parent, node, token, log_prob, total, score, ended in zip(*row, strict=True):
                if total == float("-inf"):
                    continue
                root = self.roots[sentence]
                branch = Branch(
                    token, log_prob, total, score, step.length, parent=self._nodes.get(parent, root), branches=[]
                )
                self._attach(branch, node, ended)

    def _attach(self, branch: Branch, node: int, ended: bool) -> None:
        assert branch.parent is not None
        branch.parent.branches.append(branch)
        if node == Paths.ROOT:
            return
        self._nodes[node] = branch
        branch.fate = "ended" if ended else "followed"
        for ancestor in branch.path():
            ancestor.until = branch.step

    def decided(self, results: list[list[tuple[float, int]]]) -> None:
        for ranked in results:
            for rank, (score, node) in reversed(list(enumerate(ranked))):
                leaf = self._nodes[node]
                leaf.rank, leaf.score = rank, score
                for branch in leaf.path():
                    branch.fate = "best" if rank == 0 else "result"
        self._nodes.clear()

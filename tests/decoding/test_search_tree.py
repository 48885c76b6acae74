"""The tree of a beam search: its results are the search's own, its numbers those of the table, and observing changes nothing."""

import math

import pytest

from saccade.decoding import BeamConfig, Prefix, beam_search, score_targets
from saccade.decoding.search_tree import SearchTree


def searched(stepper, *sources, size=4, best=3, max_length=6, **more):
    penalty = more.pop("length_penalty", 0.8)
    tree, config = SearchTree(), BeamConfig(size=size, best=best, length_penalty=penalty)
    inputs = stepper.inputs(*sources)
    unwatched = beam_search(*inputs, config, max_length=max_length, **stepper.special, **more)
    watched = beam_search(*inputs, config, max_length=max_length, observer=tree, **stepper.special, **more)
    assert watched == unwatched
    return watched, tree


def written(branch, eos):
    tokens = branch.tokens
    return tokens[:-1] if tokens[-1:] == [eos] else tokens


@pytest.mark.parametrize("seed", range(2))
def test_the_results_are_the_ranked_leaves(table_stepper, seed):
    stepper = table_stepper(seed, vocabulary=7)
    results, tree = searched(stepper, 0, 1, 2)
    for hypotheses, root in zip(results, tree.roots, strict=True):
        ranked = sorted((leaf for leaf in root.everything() if leaf.rank is not None), key=lambda leaf: leaf.rank)
        assert [written(leaf, stepper.eos) for leaf in ranked] == [hypothesis.tokens for hypothesis in hypotheses]
        assert [leaf.score for leaf in ranked] == [hypothesis.score for hypothesis in hypotheses]
        assert [leaf.total for leaf in ranked] == pytest.approx([hypothesis.log_prob for hypothesis in hypotheses])
        assert not any(leaf.branches for leaf in ranked if leaf.tokens[-1] == stepper.eos)
        assert [branch.fate for branch in ranked[0].path()] == ["best"] * ranked[0].step


@pytest.mark.parametrize("seed", range(2))
def test_every_number_stands_in_the_table(table_stepper, seed):
    stepper = table_stepper(seed, vocabulary=6)
    _, tree = searched(stepper, 5, length_penalty=0.6)
    branches = list(tree.roots[0].everything())[1:]
    assert len({tuple(branch.tokens) for branch in branches}) == len(branches)
    for branch in branches:
        total = stepper.log_prob_of(5, tuple(branch.tokens))
        assert branch.total == pytest.approx(total, abs=1e-5)
        assert branch.total == pytest.approx(sum(ancestor.log_prob for ancestor in branch.path()))
        assert branch.score == pytest.approx(total / ((5 + branch.step) / 6) ** 0.6, abs=1e-5)


def test_no_more_are_followed_than_the_beam_is_wide_and_those_given_up_are_no_better(table_stepper):
    stepper = table_stepper(2, vocabulary=9)
    _, tree = searched(stepper, 0, size=3, max_length=8)
    branches = list(tree.roots[0].everything())[1:]
    for step in range(1, max(branch.step for branch in branches)):
        here = [branch for branch in branches if branch.step == step and branch.token != stepper.eos]
        followed = [branch.total for branch in here if branch.until]
        given_up = [branch.total for branch in here if not branch.until]
        assert len(followed) == 3
        assert max(given_up, default=-math.inf) <= min(followed)
        assert all(not branch.branches for branch in here if branch.fate == "given up")


def test_a_branch_is_in_the_beam_until_the_last_of_what_came_of_it(table_stepper):
    stepper = table_stepper(4, vocabulary=9)
    _, tree = searched(stepper, 0, 3, size=4, max_length=8)
    dead = 0
    for root in tree.roots:
        for branch in list(root.everything())[1:]:
            below = [descendant.step for descendant in branch.everything() if descendant.fate != "given up"]
            assert branch.until == max(below, default=0)
            dead += branch.fate == "followed" and not branch.branches
    assert dead


def test_a_forced_beginning_is_a_stem_without_branches_and_a_branch_given_up_can_be_followed(table_stepper):
    import torch

    stepper = table_stepper(1, vocabulary=7)
    _, tree = searched(stepper, 0)
    given_up = next(
        branch
        for branch in tree.roots[0].everything()
        if branch.step == 2 and branch.fate == "given up" and branch.token != stepper.eos
    )
    prefix = Prefix(torch.tensor([given_up.tokens]), torch.tensor([2]))
    [[best, *_]], again = searched(stepper, 0, prefix=prefix)
    assert best.tokens[:2] == given_up.tokens
    stem = again.roots[0].branches
    assert len(stem) == len(stem[0].branches) == 1
    assert stem[0].branches[0].total == pytest.approx(given_up.total, abs=1e-6)
    [scored] = score_targets(*stepper.inputs(0), torch.tensor([best.tokens]), torch.tensor([len(best.tokens)]), eos=2)
    assert best.log_prob == pytest.approx(scored.log_prob, abs=1e-5) or not best.finished


def test_places_that_nobody_fills_are_no_branches(table_stepper):
    stepper = table_stepper(0, vocabulary=4).only_eos(1)
    [[one]], tree = searched(stepper, 1, size=5, best=2)
    assert one.tokens == []
    (end,) = tree.roots[0].branches
    assert (end.fate, end.rank, end.token) == ("best", 0, stepper.eos)
    narrow = table_stepper(3, vocabulary=4)
    _, tree = searched(narrow, 0, size=12, best=12, max_length=3)
    paths = [tuple(branch.tokens) for branch in tree.roots[0].everything()]
    assert len(set(paths)) == len(paths)

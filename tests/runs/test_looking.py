"""One way in for every task: what is looked at is called by its name."""

from sights import a_picture, a_task

from saccade.runs.looking import looked


def test_a_held_out_picture_has_a_name_and_a_reference(tmp_path):
    task = a_task(tmp_path, "vit")
    for name, truth, source in (("test:0", "frog", "test:0"), (None, None, "an image of 16 × 24")):
        values = looked(task, a_picture(), name=name, truth=truth).to_dict()
        assert (values["answer"]["source"], values["truth"]) == (source, truth)

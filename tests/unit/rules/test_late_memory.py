"""What earlier runs knew is read only after this run has begun to judge: a disk was slow, or locked."""

from msgspec.structs import replace

from gpuwatch.rules.incidents import Incidents
from tests.fakes.story import Story


def late(story: Story, temperature: float, *, blind: float, dump: bool = True) -> None:
    """Let the daemon start anew, judge for so long without its memory, and be given it only then."""
    story.save()
    known = list(story.incidents.known.values())
    story.begin()
    story.incidents = Incidents("vision-07", story.new_id)
    story.gpu(0, temperature=temperature).at(story.now + blind)
    mine = {(one.rule, one.key): one for one in story.incidents.open()}
    united = [
        replace(mine[one.rule, one.key], id=one.id, since=one.since, fired_at=one.fired_at)
        if (one.rule, one.key) in mine
        else one
        for one in known
    ]  # as the store unites them
    if dump:
        story.engine.restore(story.blobs["engine"][1], story.mono, story.wall)
    story.incidents.restore(united)
    story.hear(story.engine.adopt(united, story.mono, story.wall))


def test_an_alert_of_a_gpu_that_is_calm_by_now_ends_in_its_time(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    late(story, 60.0, blind=30)
    (alert,) = (alert for alert in story.engine.awake() if alert.severity is not None)
    assert alert.rule.name == "gpu_overheating"
    story.at(story.now + 170)
    assert [one.after for one in story.heard()] == ["firing"]
    story.at(story.now + 20)
    assert [one.after for one in story.heard()] == ["firing", "inactive"]
    assert story.incidents.open() == []


def test_an_alert_without_its_dump_is_taken_from_its_incident_even_where_this_run_has_long_seen_calm(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    late(story, 60.0, blind=30, dump=False)
    story.at(story.now + 190)
    assert [one.after for one in story.heard()] == ["firing", "inactive"]


def test_an_alert_that_fires_again_by_then_goes_on_as_the_old_one(story: Story) -> None:
    story.gpu(0, temperature=88.0).at(200)
    (old,) = story.incidents.open()
    late(story, 88.0, blind=150)
    (here,) = story.incidents.open()
    (alert,) = (alert for alert in story.engine.awake() if alert.severity is not None)
    assert (here.id, here.fired_at, alert.since) == (old.id, old.fired_at, old.since)
    story.at(story.now + 100).gpu(0, temperature=60.0).at(story.now + 300)
    assert [one.after for one in story.heard()] == ["firing", "firing", "inactive"]
    assert story.incidents.known["gpu_overheating", "gpu", old.key].id == old.id

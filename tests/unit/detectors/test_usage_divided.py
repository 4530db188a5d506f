"""What the tenants of a GPU that is divided into MIG instances have had of it."""

import pytest

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.catalogue.process import GPU_IDLE_ALLOCATED
from tests.fakes.accounts import Host


def divided(active: float | None, size: float | None = 5.0, utilization: float | None = None) -> Host:
    """Return a card of 40 GiB in seven instances with a tenant each."""
    host = Host(users=8, jobs=8)
    host.utilization = utilization
    for number in range(7):
        host.instances[str(number)] = size, active
        host.on(f"u{number}", f"j{number}", instance=str(number), memory=4.0, share=None)
    return host


@pytest.mark.parametrize(("size", "each"), [(5.0, 12.5), (None, 100 / 7)])
def test_the_tenants_of_a_divided_gpu_do_not_hold_more_than_the_gpu(size: float | None, each: float) -> None:
    host = divided(None, size).go_on(101)
    assert pytest.approx([each] * 7) == [host.user(f"u{number}", "held") for number in range(7)]
    assert pytest.approx([each] * 7) == [host.job(f"j{number}", "held") for number in range(7)]
    assert pytest.approx([100 * 300 / 7] * 7) == [host.user(f"u{number}", "energy") for number in range(7)]


def test_use_of_an_instance_that_is_not_told_is_absent_and_not_0() -> None:
    host = divided(None).go_on(101)
    assert (host.user("u0", "busy"), host.user("u0", "idle")) == (None, None)
    assert host.value(GPU, {"gpu": "0"}, GPU_IDLE_ALLOCATED) is None


def test_what_an_instance_does_is_that_of_its_tenant() -> None:
    host = divided(0.4)
    host.instances["3"] = 5.0, 0.0
    host.go_on(101)
    assert pytest.approx((5.0, 0.0)) == (host.user("u0", "busy"), host.user("u0", "idle"))
    assert pytest.approx((0.0, 12.5)) == (host.user("u3", "busy"), host.user("u3", "idle"))
    assert host.value(GPU, {"gpu": "0"}, GPU_IDLE_ALLOCATED) == 0.0
    assert pytest.approx((0.0, 5000.0)) == (host.user("u3", "energy"), host.user("u0", "energy"))
    host.instances = dict.fromkeys(host.instances, (5.0, 0.0))
    host.go_on(10)
    assert host.value(GPU, {"gpu": "0"}, GPU_IDLE_ALLOCATED) == 10.0


def test_a_tenant_of_two_instances_holds_both_and_of_two_tenants_of_one_nobody_s_use_is_known() -> None:
    host = divided(0.4).on("u0", "j9", instance="1", share=None).go_on(101)
    assert (host.user("u0", "held"), host.user("u1", "held")) == (25.0, 12.5)
    assert [None, None, pytest.approx(5.0)] == [host.user(f"u{number}", "busy") for number in range(3)]

"""A minute of everything at once; ten of them: tests/bench/soak.py."""
import soak_run
from chaos_faults import Done, Schedule
from figures import figure


def test_nothing_grows_and_every_request_is_accounted_for(logs):
    figures, reasons = soak_run.run(logs, seconds=50, rate=15)
    print(figures)
    figure(f"soak of {figures.seconds:g} s, {len(figures.schedule.faults)} faults", f"{figures.failed} of {figures.requests} failed, {figures.wrong} of "
           f"{figures.texts} texts wrong, longest pause {figures.stall_s:.2f} s", "0 failed, 0 wrong")
    print(figures.schedule.line())
    assert len(figures.schedule.faults) >= 3 and figures.left > 20 and figures.refused > 10 and figures.requests > 300
    assert figures.failed == 0 and figures.wrong == 0, reasons
    assert set(figures.unaccounted.values()) == {0}
    for name, memory in figures.memory_mb.items():
        assert len(memory) == 10 and memory[9] < memory[2] * 1.1 + 2, f"{name}: MB at each tenth of the way: {memory}"
    # Of workers that were killed and began anew, too; and one that was not has no more than they.
    spared = max(mb for name, memory in figures.memory_mb.items() if name.startswith("worker") for mb in memory)
    figure("memory of any worker; of the one that lived on, at most", f"{figures.worker_memory_mb_max:.1f} MB; {spared:.1f} MB", "flat")
    assert 0 < figures.worker_memory_mb_max < spared * 1.1 + 2
    assert all(one.fault != "kill" or one.victim != soak_run.SPARED for one in figures.schedule.faults)
    # Connections to workers and the other gateway are kept (a dozen), those of the hundreds of clients that left are gone.
    for name, (before, after) in figures.descriptors.items():
        assert after < before + 40, f"{name}: {before} descriptors became {after}"


def test_the_faults_of_a_soak_are_brought_about_again(logs):
    folder = logs / "again"  # of its own: etcd keeps its data there
    folder.mkdir()
    plan = Schedule(5, 4, [Done("slow", 3, 3, 1), Done("kill", 1, 5.5, 1), Done("hang", 2, 8, 1)])
    figures, reasons = soak_run.run(folder, seconds=11, seed=5, rate=4, again=plan)
    assert figures.failed == 0 and figures.wrong == 0, reasons
    done = figures.schedule.faults
    assert [(one.fault, one.victim, one.for_s) for one in done] == [(one.fault, one.victim, one.for_s) for one in plan.faults]
    assert all(one.at_s <= other.at_s < one.at_s + 2 for one, other in zip(plan.faults, done)), done  # (a worker's start takes its time)

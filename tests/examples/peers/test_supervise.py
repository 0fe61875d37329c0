"""Groups of processes: each is heard, and none outlives its group."""

import sys
import time
from pathlib import Path

from examples.peers.supervise import Group

SAY = 'open(sys.argv[1], \'a\').write(\'{"event": "%s", "why": "of this one"}\\n\')'


def start(tmp_path, *programs):
    head = "import sys, time, os\n"
    commands = [[sys.executable, "-S", "-c", head + program, "{lines}"] for program in programs]
    return Group([[word if word == "{lines}" else word.replace("{", "{{").replace("}", "}}") for word in command]
                  for command in commands], tmp_path)  # fmt: skip


def test_a_process_works_only_when_it_is_let(tmp_path):
    group = start(tmp_path, f"sys.stdin.readline(); {SAY % 'worked'}")
    assert group.wait(0, "worked", time.monotonic() + 0.2) is None
    group.begin()
    found = group.wait(0, "worked", time.monotonic() + 10)
    group.end()
    assert found == {"event": "worked", "why": "of this one"}


def test_what_a_process_wrote_outlives_it_but_for_half_a_line(tmp_path):
    group = start(tmp_path, f"{SAY % 'first'}; open(sys.argv[1], 'a').write('half'); os.abort()")
    group.wait_all(time.monotonic() + 10, grace_s=0)
    assert ([line["event"] for line in group.lines(0)], group.end()[0][:20]) == (
        ["first"],
        "it died of SIGABRT; ",
    )


def test_the_others_get_their_grace_when_one_fails_and_no_more(tmp_path):
    group = start(tmp_path, "sys.exit(3)", "time.sleep(60)")
    begun = time.monotonic()
    group.wait_all(begun + 30, grace_s=0.3)
    said = group.end()
    assert time.monotonic() - begun < 5
    assert said == ["it ended with 3; its log ends: nothing", "it did not answer in time and was ended"]


def test_a_process_that_is_meant_to_be_lost_is_not_waited_for(tmp_path):
    group = start(tmp_path, "pass", "time.sleep(60)")
    begun = time.monotonic()
    group.wait_all(begun + 30, but=1, grace_s=30)
    group.end()
    assert time.monotonic() - begun < 5


def test_what_a_process_raised_is_told_before_how_it_ended(tmp_path):
    group = start(tmp_path, f"{SAY % 'raised'}; sys.exit(1)")
    group.wait_all(time.monotonic() + 10, grace_s=0)
    assert group.end() == ["of this one"]


def test_the_last_words_of_a_process_that_wrote_no_line_are_told(tmp_path):
    group = start(tmp_path, "raise ValueError('bad')")
    group.wait_all(time.monotonic() + 10, grace_s=0)
    assert group.end() == ["it ended with 1; its log ends: ValueError: bad"]


def test_a_child_of_a_process_is_ended_with_it(tmp_path):
    group = start(tmp_path, f"p = os.fork()\nif p: {SAY % 'forked'}\ntime.sleep(60)")
    group.wait(0, "forked", time.monotonic() + 10)
    group.end()
    # Killed, and gone as soon as the kernel comes to it.
    bound = time.monotonic() + 10
    while (children := _children_of(group)) and time.monotonic() < bound:
        time.sleep(0.01)
    assert children == []


def _children_of(group):
    return [
        path for path in Path("/proc").glob("[0-9]*/stat") if _session_of(path) == group._processes[0].pid
    ]


def _session_of(stat):
    try:
        text = stat.read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[3]) if fields[0] != "Z" else None

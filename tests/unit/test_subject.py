"""Each record of this package says whom it was written for."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
from spark_groupsource.subject import FIELD, name_in_records, work_for
name_in_records()
name_in_records()
work_for(group="orders", query=None)
of = lambda name: getattr(logging.getLogger(name).makeRecord(name, logging.INFO, "", 0, "", (), None), FIELD)
print([of("spark_groupsource.query.cycle"), of("another"), getattr(logging.makeLogRecord({"name": "another"}), FIELD)])
"""


def test_a_record_of_ours_has_the_subject_and_all_others_have_an_empty_one() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["group orders: ", "", ""])

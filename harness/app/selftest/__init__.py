"""`fasttrack selftest`: the judge put to the test on faults that it must find, and on their clean twins."""

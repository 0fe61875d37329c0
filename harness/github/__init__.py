"""GitHub as the gate meets it: events in; check runs, one comment, annotations and code scanning out."""

"""The synchronisation audit: which reads can run before their data is there, in PTX and in SASS."""

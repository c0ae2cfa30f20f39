"""The jobs. Each module takes options, calls transforms and returns an outcome. `job.py` says what a job is."""

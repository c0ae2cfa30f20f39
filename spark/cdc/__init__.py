"""The job `cdc`."""

"""The job `audit`, its steps and its page."""

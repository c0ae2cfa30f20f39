"""DataFrame to DataFrame: what jobs are made of, and what a notebook uses directly."""

"""Functions from DataFrames to DataFrames, which jobs are made of and which a notebook can use directly."""

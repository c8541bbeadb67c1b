"""A run after it was made, or while it goes: its tables, data frames, files and figures.

tables     the tables of a run's store, column by column
intervals  speed, loss and time split of each worker, between one statistic and the next
export     tables as CSV, JSON lines or Parquet files
figures    loss, speed and time split as PNG or SVG
run        ``taut.Run``, for notebooks
"""

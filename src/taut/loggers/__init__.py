"""Metrics of a run in the tools that people already use, while the run goes: ``--report-to tensorboard,mlflow,wandb``.

feed         the new values in a run's store, as scalars, images and events
reporter     the thread that passes them on
tensorboard  event files below the run's folder
mlflow       runs of an MLflow server, or of a local file
wandb        runs of Weights & Biases, also offline
"""

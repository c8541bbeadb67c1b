"""The optimizers of the script: their steps, moments, learning rates and hyperparameters, and the scaler of the loss."""

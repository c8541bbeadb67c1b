"""Strategies that train alone for a while and then average: averaging, fedavg, diloco, admm, dynamic."""

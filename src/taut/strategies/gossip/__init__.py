"""Strategies that exchange with neighbours only: gossip, dpsgd, adpsgd, sgp, choco, gossipgrad, relaysgd."""

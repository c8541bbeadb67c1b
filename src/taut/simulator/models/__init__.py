"""Models of machines: network, links, speeds, costs, and the random numbers and arithmetic that they use."""

"""Models of machines: network, links, speeds, costs."""

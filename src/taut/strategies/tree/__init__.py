"""The relay: async over a sparse topology. Each update crosses each edge of a spanning tree once, merged on its way."""

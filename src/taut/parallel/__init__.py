"""Model parallelism: one model cut into parts, which the processes of an *island* hold together.

    columns, rows   a linear layer by its outputs or its inputs (torch's tensor parallelism)
    filters         a convolution by its filters
    paths           modules that see the same input, each path at one process
    pipeline        layers in stages, micro-batches one after the other

    clip_grad_norm  clip the gradient by the norm of all parts, in a loop of your own
    gather          the state_dict of the whole model, from its parts
    scatter         the parts of a whole state_dict, into a model that is cut in any other way

Every process builds the whole model from the same seed and then cuts it. Law: the parts compute what one process
computes, forward and backward, to rounding.
"""

from taut.parallel.clipping import clip_grad_norm
from taut.parallel.convolution import ParallelConv, filters
from taut.parallel.island import Island, island
from taut.parallel.linear import columns, rows
from taut.parallel.paths import Paths, paths
from taut.parallel.pipeline import Pipeline, pipeline
from taut.parallel.whole import gather, scatter

__all__ = ["Island", "ParallelConv", "Paths", "Pipeline", "columns", "filters", "gather", "island", "paths", "pipeline"]
__all__ += ["clip_grad_norm", "rows", "scatter"]

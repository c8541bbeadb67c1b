"""How far apart rounding alone drives replicas that make the same steps on different processors."""

# |x - mean| / |mean|. AVX2 beside plain x86-64 gives 4e-8 after 600 steps, and it grows as the square root of the steps.
DRIFT = 1e-5

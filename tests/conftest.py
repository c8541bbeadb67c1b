"""For all tests: one torch thread each, here and in the processes they start. Cores are few, and threads that wait for
each other on busy ones make a test of five seconds one of fifty."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

"""The benchmark harness: suites of figures, each with a goal, against peers on the same bytes."""

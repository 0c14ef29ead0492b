"""The tour that `anymetal demo` takes: five steps, each a function of `steps`."""

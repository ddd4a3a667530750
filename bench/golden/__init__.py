"""Golden values of every op, a module for each kind; importing one adds its cases."""

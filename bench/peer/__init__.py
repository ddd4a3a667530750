"""Packages made by coremltools, and what comes out of them: one module a kind, `common` what they share."""

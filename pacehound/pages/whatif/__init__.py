"""The answer of `pacehound whatif`: JSON, a page, pictures. `streams.whatif` analyses."""

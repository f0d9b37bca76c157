class SpanReader:
    pass

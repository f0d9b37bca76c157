class Result:
    dead_letters = ()


class Writer:
    def __init__(self, store):
        self._store = store

    def write(self, messages):
        self._store.write(messages)
        return Result()

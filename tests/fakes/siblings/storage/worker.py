from pacehound.runtime.event_loop import EventWorker


class StoreWorker(EventWorker):
    kinds = (object,)

    def __init__(self, store, clock):
        self._store = store
        self._messages = {}

    def on_event(self, event, message):
        self._messages[message.topic, message.partition, message.offset] = message
        return []

    def settle(self):
        self._store.write(self._messages.values())
        self._messages = {}
        return []

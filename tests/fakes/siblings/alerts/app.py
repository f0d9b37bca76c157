class Alerts:
    def __init__(self, *args, **kwargs):
        self.told = []

    def on_incident(self, incident):
        self.told.append(incident)

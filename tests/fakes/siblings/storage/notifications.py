class NotificationLog:
    def __init__(self, store):
        pass

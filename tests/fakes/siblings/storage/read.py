from pacehound.model.events import Decision, Incident


def incidents(store, job=None):
    latest = {}
    for event in store.events():
        is_asked_for = isinstance(event, Incident) and job in (None, event.job)
        if is_asked_for and (event.id not in latest or event.version >= latest[event.id].version):
            latest[event.id] = event
    return list(latest.values())


def decisions(store, incident_id=None):
    return [event for event in store.events() if isinstance(event, Decision)]


def last_attempt(store, job):
    return max((event.attempt for event in store.events() if event.job == job), default=None)


def told(store):
    return set()


def earlier_runs(store, job, before_attempt):
    return []

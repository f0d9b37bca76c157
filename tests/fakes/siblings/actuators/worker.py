from pacehound.model.events import Decision, Incident
from pacehound.runtime.event_loop import EventWorker


class ActuatorWorker(EventWorker):
    kinds = (Incident,)

    def __init__(self, decided, attendant=None, recovery=None, noted=None, survivors=None):
        pass

    def on_event(self, incident, message):
        return [
            Decision(
                job=incident.job,
                attempt=0,
                time_ns=incident.time_ns,
                incident=incident.id,
                incident_version=incident.version,
                mode="observe",
                action="resume_rank",
                reason="it is stopped",
                price_s=1.0,
                loss_s=2.0,
            )
        ]

from pacehound.model.events import Decision


class Actuators:
    def __init__(self, *args, **kwargs):
        pass

    def on_incident(self, incident):
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

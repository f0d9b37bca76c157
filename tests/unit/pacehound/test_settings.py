"""Settings come from defaults, environment and --set, in this order; what does not fit is refused by name."""

import pytest

from pacehound.errors import InvalidSetting
from pacehound.settings import Settings, known_keys, secret_variables
from tests.fakes.for_every import for_every


def test_an_override_beats_the_environment_and_that_the_default():
    environ = {"PACEHOUND_HANG_SUSPECT_AFTER_S": "4", "PACEHOUND_HOST_NAME": "node1", "UNRELATED": "x"}
    settings = Settings.load(environ, ["host.name=node2"])
    assert (settings.hang.suspect_after_s, settings.hang.page_after_s, settings.host.name) == (4.0, 300.0, "node2")


def test_the_last_override_of_a_key_counts_and_a_value_may_hold_an_equals_sign():
    settings = Settings.load({}, ["alerts.webhook_url=a", "alerts.webhook_url=http://h/?k=v"])
    assert settings.alerts.webhook_url == "http://h/?k=v"


@for_every({key: key for key in sorted(known_keys())})
def test_every_setting_can_be_set_by_its_variable_and_handed_on(key):
    variable = "PACEHOUND_" + key.replace(".", "_").upper()
    fits = {
        "slow.min_change": "0.7",
        "incidents.min_loss": "0.7",
        "actuators.mode": "auto",
        "agent.messages": "apart",
    }
    text = fits.get(key, "7")
    settings = Settings.load({variable: text})
    (override,) = settings.as_overrides()
    assert override.startswith(f"{key}={text}")
    assert Settings.load({}, settings.as_overrides()) == settings


def test_defaults_hand_on_nothing():
    assert Settings().as_overrides() == []
    assert Settings.load({}) == Settings()


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("hang.suspect_after_s", "has no '='"),
        ("hang.colour=red", "unknown setting 'hang.colour'; known are"),
        ("hang.suspect_after=5", "unknown setting 'hang.suspect_after'; did you mean hang.suspect_after_s"),
        ("=5", "unknown setting ''"),
        ("hang.suspect_after_s=soon", "hang.suspect_after_s='soon' does not fit"),
        ("hang.suspect_after_s=0", "must be more than 0"),
        ("hang.suspect_after_s=-3", "must be more than 0"),
        ("hang.suspect_after_s=nan", "must be more than 0"),
        ("slow.min_change=0", "must be more than 0"),
        ("agent.max_backlog_bytes=1.5", "does not fit"),
        ("agent.max_backlog_bytes=0", "must be more than 0"),
        ("slow.min_change=5", "min_change=.5. does not fit: it must be more than 0 and less than 1"),
        ("slow.min_change=1", "less than 1"),
        ("incidents.min_loss=-0.1", "at least 0"),
        ("incidents.min_loss=2", "at most 1"),
        ("hang.page_after_s=inf", "at most 2,592,000 s"),
        ("agent.cpu_budget_cores=0", "more than 0"),
        ("ops.every_steps=-1", "0 or more"),
        ("kafka.replication=0", "at least 1"),
        ("store.host_days=1000000", "100 years"),
        ("alerts.page_lost_ranks=-1", "at least 0"),
        ("recovery.memory_gib=-1", "at least 0"),
        ("recovery.bandwidth_gb_s=0", "more than 0"),
        ("alerts.tell_after_s=-1", "at least 0 and at most"),
    ],
)
def test_what_does_not_fit_is_refused(override, complaint):
    with pytest.raises(InvalidSetting, match=complaint):
        Settings.load({}, [override])


def test_a_wrong_variable_is_refused_by_its_key():
    with pytest.raises(InvalidSetting, match=r"stream\.tick_s='x'"):
        Settings.load({"PACEHOUND_STREAM_TICK_S": "x"})


def test_what_may_be_a_secret_is_known_by_its_variable_and_stays_out_of_words():
    secrets = {
        "PACEHOUND_ACTUATORS_APPROVAL_KEY",
        "PACEHOUND_ALERTS_ALERTMANAGER_URL",
        "PACEHOUND_ALERTS_HEARTBEAT_URL",
        "PACEHOUND_ALERTS_PAGERDUTY_KEY",
        "PACEHOUND_ALERTS_SLACK_URL",
        "PACEHOUND_ALERTS_SMTP_PASSWORD",
        "PACEHOUND_ALERTS_SMTP_URL",
        "PACEHOUND_ALERTS_WEBHOOK_SECRET",
        "PACEHOUND_ALERTS_WEBHOOK_URL",
        "PACEHOUND_STORE_PASSWORD",
        "PACEHOUND_STORE_URL",
        "PACEHOUND_TELEMETRY_TRACES_ENDPOINT",
        "PACEHOUND_TRACES_ENDPOINT",
    }
    assert secret_variables() == secrets
    assert "s3cret" not in repr(Settings.load(dict.fromkeys(secrets, "s3cret")))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("PACEHOUND_HANG_SUSPECT_AFTER", "no setting; did you mean PACEHOUND_HANG_SUSPECT_AFTER_S"),
        ("PACEHOUND_HNG_SUSPECT_AFTER_S", "did you mean PACEHOUND_HANG_SUSPECT_AFTER_S"),
        ("PACEHOUND_SLOW_COLOUR", "PACEHOUND_SLOW_COLOUR is no setting; known are"),
    ],
)
def test_a_misspelt_variable_is_refused_by_its_name(name, complaint):
    with pytest.raises(InvalidSetting, match=complaint):
        Settings.load({name: "4"})


@pytest.mark.parametrize(
    "name",
    [
        "PACEHOUND_TOKEN",
        "PACEHOUND_NATIVE",
        "PACEHOUND_MY_OWN",
        "PACEHOUND_STORE_SERVICE_HOST",
        "PACEHOUND_STORE_PORT",
        "PACEHOUND_STORE_PORT_9000_TCP_ADDR",
        "PACEHOUND_STORE_SERVICE_PORT_HTTP",
        "OTHER_HANG_SUSPECT_AFTER",
    ],
)
def test_variables_of_others_are_left_alone(name):
    assert Settings.load({name: "4"}) == Settings()


def test_every_number_has_its_limits():
    for key, kind in known_keys().items():
        if kind in (int, float):
            with pytest.raises(InvalidSetting, match="must be"):
                Settings.load({}, [f"{key}=-1"])

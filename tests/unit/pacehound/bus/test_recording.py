"""A recording gives back what was written, and says so where it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.bus import Message
from pacehound.bus.recording import MAGIC, Recording, RecordingWriter
from pacehound.errors import InvalidInput

messages = st.lists(
    st.builds(
        Message,
        topic=st.text(max_size=20),
        key=st.text(max_size=40),
        partition=st.integers(0, 2**32 - 1),
        offset=st.integers(0, 2**63 - 1),
        value=st.binary(max_size=300),
    ),
    max_size=10,
)


def record(path, written):
    writer = RecordingWriter(path)
    for message in written:
        writer.write(message)
    writer.close()
    return path


@given(written=messages)
def test_what_was_written_is_read_in_order(tmp_path_factory, written):
    recording = Recording(record(tmp_path_factory.mktemp("r") / "run.rec", written))
    assert list(recording) == written
    assert recording.torn_bytes == 0


def test_a_recording_torn_at_any_byte_gives_its_whole_messages_and_says_how_much_is_torn(tmp_path):
    written = [Message(topic="calls", key="c", partition=1, offset=i, value=bytes(5)) for i in range(3)]
    whole = record(tmp_path / "whole.rec", written).read_bytes()
    start = len(MAGIC) + 2
    frame = (len(whole) - start) // 3
    for length in range(start, len(whole)):
        path = tmp_path / "torn.rec"
        path.write_bytes(whole[:length])
        recording = Recording(path)
        assert list(recording) == written[: (length - start) // frame]
        assert recording.torn_bytes == (length - start) % frame


def test_an_existing_file_is_never_overwritten(tmp_path):
    (tmp_path / "run.rec").write_text("precious")
    with pytest.raises(InvalidInput, match="exists already"):
        RecordingWriter(tmp_path / "run.rec")


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "no recording"), (b"x" * 50, "no recording"), (MAGIC + b"\x09\x00", "version 9")],
)
def test_what_is_no_recording_is_refused(tmp_path, content, why):
    (tmp_path / "run.rec").write_bytes(content)
    with pytest.raises(InvalidInput, match=why):
        Recording(tmp_path / "run.rec")


def test_a_damaged_frame_is_an_error_and_no_crash(tmp_path):
    path = record(tmp_path / "run.rec", [])
    path.write_bytes(path.read_bytes() + b"\xff" * 40)
    with pytest.raises(InvalidInput, match="damaged"):
        list(Recording(path))

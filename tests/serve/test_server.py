import pytest

from saccade.errors import ConfigError, UserError
from saccade.serve.server import check_access, is_loopback, serve


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
    ],
)
def test_only_this_machine_is_local(host, local):
    assert is_loopback(host) is local


def test_other_machines_need_a_token_or_an_open_door():
    with pytest.raises(ConfigError, match="--token that they must send, or --public"):
        check_access("0.0.0.0", False, None, False)
    with pytest.raises(ConfigError, match="choose one of them"):
        check_access("0.0.0.0", False, "long-enough", True)
    with pytest.raises(ConfigError, match="8 or more"):
        check_access("0.0.0.0", False, "short", False)
    check_access("0.0.0.0", False, "long-enough", False)
    check_access("0.0.0.0", False, None, True)
    check_access("127.0.0.1", True, None, False)


def test_a_port_in_use_is_said_before_any_model_is_read(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="choose another --port"):
            serve([tmp_path / "no-run"], port=taken.getsockname()[1])

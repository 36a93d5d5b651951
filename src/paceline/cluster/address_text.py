"""``host:port`` as people write it, read into an `Address`. Pure: nothing is resolved."""

import ipaddress
import re

from paceline.cluster.spec import Address
from paceline.cluster.value_checks import Fault, shown

MAX_PORT = 65535

_EXPECTED = '"host:port"'
_EXPECTED_PORT = f'"host:port" with a port from 1 to {MAX_PORT}'
_EXPECTED_HOST = "\"host:port\" whose host is a name (letters, digits, '.', '-', '_') or an IP address"
_EXPECTED_IPV6 = '"[address]:port" with an IPv6 address'
_PORT = re.compile(r"[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_DOTTED_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)+\.?")
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]*)\](:(?P<port>.*))?", re.DOTALL)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")


def read_address(field: str, value: object) -> Address | Fault:
    """The address that `value` is, or what is wrong with it; `field` is where the user wrote it.

    >>> read_address("cluster.worker[0]", "[::1]:2222")
    Address(host='::1', port=2222)
    """
    if not isinstance(value, str):
        return Fault(field, shown(value), f"{_EXPECTED} in double quotes", 'write it like "host0:2222"')
    if "://" in value:
        fix = f"leave the scheme out: {shown(value.partition('://')[2])}"
        return Fault(field, shown(value), f"{_EXPECTED} without a scheme", fix)
    if value.startswith("["):
        return _read_ipv6(field, value)
    if value.count(":") > 1:
        host, _, port = value.rpartition(":")
        fix = f"put an IPv6 address in brackets: {shown(f'[{host}]:{port}')}"
        return Fault(field, shown(value), f'{_EXPECTED}, or "[address]:port" for IPv6', fix)
    host, colon, port = value.partition(":")
    if not host:
        fix = 'write the host before the colon, as in "host0:2222"'
        return Fault(field, shown(value), _EXPECTED, fix)
    if not is_host(host):
        fix = "correct the host; each address has its own double quotes"
        return Fault(field, shown(value), _EXPECTED_HOST, fix)
    if not colon:
        return Fault(field, shown(value), _EXPECTED_PORT, f"add the port: {shown(f'{host}:2222')}")
    return _with_port(field, value, host, port)


def _read_ipv6(field: str, value: str) -> Address | Fault:
    match = _BRACKETED.fullmatch(value)
    if match is None or not is_ipv6(match["host"]):
        return Fault(field, shown(value), _EXPECTED_IPV6, 'write it like "[fd00::7]:2222"')
    if match["port"] is None:
        return Fault(field, shown(value), _EXPECTED_IPV6, f"add the port: {shown(f'{value}:2222')}")
    return _with_port(field, value, match["host"], match["port"])


def _with_port(field: str, value: str, host: str, port: str) -> Address | Fault:
    if _PORT.fullmatch(port) is None or not 1 <= int(port) <= MAX_PORT:
        fix = f"choose a port in that range, such as {shown(str(Address(host, 2222)))}"
        return Fault(field, shown(value), _EXPECTED_PORT, fix)
    return Address(host, int(port))


def is_host(host: str) -> bool:
    """Whether `host` can be a host's name or IPv4 address."""
    if _DOTTED_NUMBERS.fullmatch(host) is None:
        return _NAME.fullmatch(host) is not None
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def is_ipv6(host: str) -> bool:
    """Whether `host` is an IPv6 address, perhaps with a zone (``fe80::1%eth0``); without brackets."""
    if _IPV6.fullmatch(host) is None:
        return False
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only processes of the same host can mean themselves by `host`.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
    (True, True, False)
    """
    return host in ("localhost", "::1") or host.startswith("127.")

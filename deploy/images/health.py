"""The image's health check, whatever command runs: asks `/readyz` of a process that was started with `--http`.

Without `--http` there is nothing to ask, and a process that runs counts as healthy.
"""

from __future__ import annotations

import http.client
import re
import ssl
import sys
from pathlib import Path

TIMEOUT_S = 4
HTTP = re.compile(r"--http[=\0 ](\S*?):?(\d+)(?=[\0 ]|$)")


def address_of(command: str) -> tuple[str, int] | None:
    """Returns where a command line's process answers; an address of all interfaces is asked on this machine."""
    found = HTTP.search(command)
    if found is None:
        return None
    host = found[1].strip("[]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(found[2])


def ask(host: str, port: int) -> tuple[int, str]:
    """Returns the status and the body of `/readyz`, by HTTP or, with a certificate of whatever name, by HTTPS."""
    plain = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        return answer_of(plain)
    except (http.client.HTTPException, ConnectionResetError):
        trusting = ssl._create_unverified_context()
        return answer_of(http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trusting))


def answer_of(connection: http.client.HTTPConnection) -> tuple[int, str]:
    """Asks once."""
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    return answer.status, answer.read().decode(errors="replace").strip()


def main() -> int:
    """Returns 0 for healthy, 1 else; what it prints is shown by `docker inspect`."""
    address = address_of(Path("/proc/1/cmdline").read_text(errors="replace"))
    if address is None:
        print("The process runs; without --http it tells no more.")
        return 0
    try:
        status, body = ask(*address)
    except OSError as error:
        print(f"{address[0]}:{address[1]} doesn't answer: {error}")
        return 1
    print(body)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())

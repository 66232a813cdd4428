"""Builds what would be published, installs it into an empty environment, and runs the example there."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from test_bridge import Bridges, url

HERE = Path(__file__).parents[1]


@pytest.mark.skipif(not os.environ.get("DELAYBRIDGE_TEST_BRIDGE"), reason="make sdk-python runs it")
def test_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(HERE)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"delaybridge/py.typed", "delaybridge/outbox.py", "delaybridge/testing.py"} <= names
    assert all(n.startswith("delaybridge") for n in names)
    with tarfile.open(sdist) as packed:
        assert any(n.endswith("/src/delaybridge/py.typed") for n in packed.getnames())
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=120)
    python = str(environment / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    bridges = Bridges(tmp_path)
    try:
        example = [python, str(HERE / "examples" / "reminder.py"), url(bridges.admin)]
        said = subprocess.run(example, check=True, capture_output=True, text=True, timeout=60, cwd=tmp_path).stdout
    finally:
        bridges.close()
    assert said == "order-42/timeout is due in 30 minutes\ncancelled: it will never be published\n"
